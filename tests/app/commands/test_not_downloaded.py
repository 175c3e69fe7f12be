"""Data of the hub is downloaded by `prepare` and by sessions, never by a command that only reads weights."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from lm.data import hub
from lm.data.generate import generated
from relay.app.models.registry import MODELS
from relay.app.models.trm import Trm
from tests.app.cli import Desk, Result
from tests.torch.hubdouble import Dataset, serving
from trm import tasks
from trm.data.hub import SUDOKU_EXTREME

pytestmark = pytest.mark.slow
SHAPE = ("arch.width=16", "arch.heads=2", "arch.depth=1", "arch.context=16", "batch_size=4", "threads=1")
TEXT = ("task=lm_fast", *SHAPE, "arch.forward_dtype=float32", "data.shards=1", "data.vocab_size=300")
PUZZLES = ("task=sudoku", "arch.hidden_size=16", "arch.num_heads=2", "arch.H_cycles=1", "arch.L_cycles=1",
           "batch_size=4", "data.train_rows=4", "data.train=hub", "data.test=hub", "threads=1")  # fmt: skip
CSV = (Path(__file__).parents[2] / "data" / "sudoku" / "good.csv").read_bytes()
UNEVALUATED = "evaluation.every_commits=0"


def shard(number: int) -> bytes:
    out, texts = io.BytesIO(), list(generated("stories", 60_000))[40 * number : 40 * number + 40]
    parquet.write_table(pyarrow.table({"text": texts}), out)
    return out.getvalue()


@dataclass
class World:
    """A run of one machine, and another machine that has its store alone."""

    words: tuple[str, ...]
    hub: Dataset
    first: Desk
    second: Desk

    def without_download(self, *words: str, code: int = 0) -> Result:
        """A command of the second machine, which asks the hub for nothing."""
        before = len(self.hub.asked)
        done = self.second(*words, code=code)
        assert len(self.hub.asked) == before, f"{words} asked the hub"
        return done


def new(folder: Path) -> Desk:
    return Desk(folder, {"RELAY_CPU": "1"}, plugin=Trm(), models=MODELS)  # type: ignore[arg-type]


@pytest.fixture(params=["text", "puzzles"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    shards = {hub.name_of(number): shard(place) for place, number in enumerate((0, 1, hub.HELD_OUT))}
    dataset = Dataset(hub.REPO, shards)
    if request.param == "puzzles":
        dataset = Dataset(SUDOKU_EXTREME, {"train.csv": CSV, "test.csv": CSV})
        monkeypatch.setattr(tasks, "VALID_ROWS", 2)
        monkeypatch.setattr(tasks, "TEST_ROWS", 2)
    with serving(dataset, tmp_path, monkeypatch) as served:
        monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1 << 16)
        first, second = new(tmp_path / "first"), new(tmp_path / "second")
        words = TEXT if request.param == "text" else PUZZLES
        first.train(2, *words, UNEVALUATED)
        assert served.asked
        second.environ["RELAY_STORE"] = (first.folder / "relay_store").as_uri()
        yield World(words, served, first, second)


def test_a_score_needs_the_runs_own_data_which_prepare_downloads(world: World) -> None:
    evaluate = ("evaluate", "--run", "r", "--rows", "2", "data_dir=elsewhere")
    refused = world.without_download(*evaluate, code=65)
    assert "data.train=hub" in refused.err and str(world.second.folder / "elsewhere") in refused.err
    (prepare,) = refused.advised("prepare")
    world.second(*prepare)
    assert world.without_download(*evaluate, "--json").json["metrics"]


def test_what_needs_other_rows_or_none_is_done_without(world: World) -> None:
    shown = world.without_download("examples", "--run", "r", "--first", "1")
    assert shown.out and "data.train" in shown.err and shown.advised("prepare")
    assert world.without_download("verify", "--run", "r", "--deep", "--json").json["ok"]
    assert world.without_download("export", "--run", "r", "--json").json["files"]


def test_weights_in_a_file_are_measured_on_data_that_is_here(world: World) -> None:
    (weights,) = [
        path
        for path in world.first("export", "--run", "r", "--json").json["files"]
        if path.endswith("model.safetensors")
    ]
    evaluate = ("evaluate", "--weights", weights, "--rows", "2", *world.words)
    (prepare,) = world.without_download(*evaluate, code=65).advised("prepare")
    assert set(world.words) <= set(prepare)
    world.second(*prepare)
    assert world.without_download(*evaluate, "--json").json["metrics"]


def test_a_fork_that_reads_its_data_downloads_none(world: World) -> None:
    change = "data.shards=2" if world.words is TEXT else "seed=5"
    refused = world.without_download("fork", "--run", "r", "--to", "other", change, code=65)
    assert "data.train=hub" in refused.err


def test_a_large_task_whose_own_text_is_missing_takes_no_text_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preset's text is the hub's: it is not the run's."""
    first, second = new(tmp_path / "first"), new(tmp_path / "second")
    own = first.folder / "text.txt"
    own.write_text("".join(f"Line {number} of a text.\n" + "\n" * (number % 50 == 0) for number in range(2000)))
    first.train(2, *TEXT, f"data.train={own}", UNEVALUATED)
    second.environ["RELAY_STORE"] = (first.folder / "relay_store").as_uri()
    own.rename(own.with_name("away"))
    with serving(Dataset(hub.REPO, {}), tmp_path, monkeypatch) as served:
        for words in (("evaluate", "--run", "r", "--rows", "2"), ("examples", "--run", "r", "--first", "1"),
                      ("verify", "--run", "r", "--deep")):  # fmt: skip
            said = second(*words).err
            assert own.name in said and "data.train=PATH" in said
    assert not served.asked
