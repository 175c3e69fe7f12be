"""Files that a user names may be links, as in the cache of the Hugging Face hub; those of a checkpoint may not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lm.config import TOKENIZER_FILE
from relay.app.studies.studyfile import shipped
from relay.torch.statefile import check_tensors, load_tensors
from tests.app.cli import Desk
from tests.app.models.test_contract import MODELS
from tests.trm.data.arc import files
from trm.data.arc import generate

pytestmark = pytest.mark.slow
LM = ("task=lm_tiny", "arch.depth=1", "arch.width=16", "arch.heads=2", "arch.context=16", "batch_size=4", "threads=1",
      "data.vocab_size=300", "data.train=text.txt")  # fmt: skip
OWN = (*LM, f"data.tokenizer=weights/step_2/{TOKENIZER_FILE}")
TRM = ("task=sudoku4", "batch_size=4", "data.train_rows=8", "arch.hidden_size=16", "arch.num_heads=2",
       "arch.H_cycles=1", "arch.L_cycles=1", "threads=1")  # fmt: skip
CHALLENGES = f"arc/arc-agi_{generate.TEST}_challenges.json"
SOLUTIONS = CHALLENGES.replace("challenges", "solutions")
ARC = ("task=arc1", f"data.subsets=[{generate.TEST}]", f"data.test_set={generate.TEST}", "data.num_aug=1")
WORDS = [
    ("prepare", *LM, "data.valid=text.txt", "data.tokenizer=generated"),
    ("prepare", *OWN),
    ("evaluate", "--weights", "weights/step_2/model.safetensors", "--rows", "2", *OWN),
    ("import", "weights/step_2/model.safetensors", "--run", "new", *OWN),
    ("evaluate", "--weights", "puzzles/step_2/model.safetensors", "--rows", "2", *TRM),
    ("evaluate", "--weights", "reference/step_2", "--rows", "2", *TRM),
    ("run", "--run", "from", "--target-steps", "1", "load_checkpoint=reference/step_2", *TRM),
    ("prepare", "task=sudoku4", "data.train=dataset", "data.test=dataset"),
    ("prepare", "task=sudoku4", "data.train=rows.csv", "data.test=rows.csv"),
    ("prepare", *ARC, "data.source=arc"),
    ("prepare", *ARC, f"data.source={CHALLENGES}"),
    ("arc", "check", "submission.json", "--tasks", CHALLENGES),
    ("arc", "score", "submission.json", "--solutions", SOLUTIONS),
    ("config", "show", "--config", "settings.yaml"),
    ("study", "check", "study.yaml"),
    ("cloud", "list", "--prices", "prices.yaml"),
]


def new(folder: Path) -> Desk:
    return Desk(folder, {"RELAY_CPU": "1"}, MODELS.of_task("sudoku4"), models=MODELS)  # type: ignore[arg-type]


def as_in_a_cache(folder: Path, blobs: Path) -> None:
    """Each file below the folder becomes a link to one of blobs/, whose name says nothing."""
    blobs.mkdir()
    for number, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        path.rename(blobs / f"{number:040x}")
        up = "../" * len(path.relative_to(blobs.parent).parent.parts)
        path.symlink_to(f"{up}{blobs.name}/{number:040x}")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of every kind, each a link."""
    folder = tmp_path_factory.mktemp("links")
    made, place = new(folder / "maker"), folder / "snapshot"
    text = place / "text.txt"
    place.mkdir()
    text.write_text("".join(f"On day {n} it went on to {n * n}.\n" + "\n" * (n % 50 == 0) for n in range(3000)))
    unevaluated = "evaluation.every_commits=0"
    made.train(2, *LM, f"data.train={text}", "data.tokenizer=generated", unevaluated)
    made.train(2, *TRM, unevaluated, run="puzzles")
    for run, out, form in (("r", "weights", "safetensors"), ("puzzles", "puzzles", "safetensors"),
                           ("puzzles", "reference", "reference")):  # fmt: skip
        made("export", "--run", run, "--out", str(place / out), "--format", form)
    made("prepare", "task=sudoku4", "data.train_rows=8", "--folder", str(place / "dataset"))
    (place / "rows.csv").write_text("source,question,answer,rating\n" + "t,12343412214343.1,1234341221434321,1\n" * 300)
    tasks = files.tasks()[generate.TEST]
    files.kaggle(place / "arc", generate.TEST, tasks)
    attempts = {task.name: [{f"attempt_{n}": pair.output for n in (1, 2)} for pair in task.tests] for task in tasks}
    (place / "submission.json").write_text(json.dumps(attempts))
    (place / "settings.yaml").write_text("batch_size: 4\n")
    (place / "study.yaml").write_bytes(shipped()["lm_hops"].read_bytes())
    (place / "prices.yaml").write_text(made("cloud", "prices").out)
    as_in_a_cache(place, folder / "blobs")
    return place


@pytest.mark.parametrize("words", WORDS, ids=["_".join(words[:3]) for words in WORDS])
def test_a_link_to_a_file_is_the_file(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    desk = new(tmp_path / "desk")
    for path in given.iterdir():
        (desk.folder / path.name).symlink_to(path)
    monkeypatch.chdir(desk.folder)
    desk(*words)


def test_a_link_in_a_checkpoint_is_never_followed(tmp_path: Path) -> None:
    tensors = {"raw/a": torch.ones(3)}
    save_file(tensors, tmp_path / "x")
    (tmp_path / "weights.safetensors").symlink_to("x")
    check_tensors(tmp_path / "weights.safetensors", tensors, typed=True)
    with pytest.raises(ValueError, match=r"weights\.safetensors is missing"):
        load_tensors(tmp_path, {"weights.safetensors": ("raw/",)}, tensors)
