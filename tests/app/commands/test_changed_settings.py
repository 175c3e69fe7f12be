"""Settings changed between sessions, with the real model: the refusal of a change names the fork that works."""

from __future__ import annotations

import json
import shlex
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from relay.app.models.trm import Trm
from relay.core.errors import BadData
from tests.app.cli import Desk

pytestmark = pytest.mark.slow
SMALL = ("batch_size=4", "data.train_rows=8", "arch.hidden_size=32", "arch.num_heads=2", "arch.H_cycles=1",
         "arch.puzzle_emb_ndim=32", "evaluation.every_commits=0")  # fmt: skip


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = Desk(tmp_path_factory.mktemp("lived"), plugin=Trm())  # type: ignore[arg-type]
    desk.train(3, *SMALL)
    return desk


def files(desk: Desk, run: str, step: int) -> dict[str, torch.Tensor]:
    (folder,) = (desk.folder / "relay_store" / "checkpoints").glob(f"*/{run}/step_{step}.e*")
    return {name: value for file in sorted(folder.glob("*.safetensors")) for name, value in load_file(file).items()}


@pytest.mark.parametrize(
    ("run", "change"), [("wider", "batch_size=6"), ("deeper", "arch.L_cycles=3"), ("fewer", "data.train_rows=5")]
)
def test_the_fork_that_a_refusal_names_goes_on_with_weights_and_a_fresh_carry(
    lived: Desk, run: str, change: str
) -> None:
    refused = lived.train(6, *SMALL, change, code=78)
    assert change.partition("=")[0] in refused.err and "newest checkpoint: " in refused.err
    words = shlex.split(refused.err.partition("checkpoint: ")[2])[2:]
    words[words.index("--to") + 1] = run
    told = lived(*words)
    assert "carry" in told.out and "step 3" in told.out
    assert ("validation rows" in told.out) == change.startswith("data.")
    before, after = files(lived, "r", 3), files(lived, run, 3)
    same = {name for name in before if not name.startswith("carry/")}
    assert same == {name for name in after if not name.startswith("carry/")}
    assert all(torch.equal(before[name], after[name]) for name in same), "weights, averages and moments are the same"
    assert bool(after["carry/halted"].all()) and not bool(after["carry/steps"].any())
    done = lived.train(5, *SMALL, change, run=run)
    assert "Durable step: 5" in done.out
    assert lived("verify", "--run", run, "--json").json["ok"]
    assert lived.status("r")["step"] == 3, "the parent is as it was"


def test_other_settings_keep_the_carry(lived: Desk) -> None:
    assert "fresh carry" not in lived("fork", "--run", "r", "--to", "slower", "lr=1e-5").out
    before, after = files(lived, "r", 3), files(lived, "slower", 3)
    assert all(torch.equal(before[name], value) for name, value in after.items())
    lived.train(4, *SMALL, "lr=1e-5", run="slower")


def test_without_averages_they_are_left_out_and_with_them_they_begin_at_the_weights(lived: Desk) -> None:
    lived("fork", "--run", "r", "--to", "plain", "ema=false")
    plain = files(lived, "plain", 3)
    assert not any(name.startswith("ema/") for name in plain)
    lived("fork", "--run", "plain", "--to", "averaged", "ema=true")
    averaged = files(lived, "averaged", 3)
    assert all(
        torch.equal(value, averaged[f"raw/{name[4:]}"]) for name, value in averaged.items() if name[:4] == "ema/"
    )
    lived.train(4, *SMALL, "ema=true", run="averaged")


def _grids(file: Path, part: str) -> Path:
    """Twelve 4x4 grids with two cells hidden; the parts have different digits."""
    lines = ["source,question,answer,rating"]
    for order in list(permutations("1234"))[part == "test" :: 2]:
        solved = "1234341221434321".translate(str.maketrans("1234", "".join(order)))
        lines.append(f"own,.{solved[1:-1]}.,{solved},0")
    file.write_text("\n".join(lines) + "\n")
    return file


def genesis(desk: Desk, run: str) -> dict[str, Any]:
    first = min((desk.folder / "relay_store").rglob(f"{run}/ledger/*.json"))
    found: dict[str, Any] = json.loads(first.read_text())["body"]["change"]["config"]
    return found


def test_settings_named_as_the_run_has_them_are_no_change(lived: Desk) -> None:
    """A person who repeats the whole command of the run with a lower rate keeps the carry."""
    assert "fresh carry" not in lived("fork", "--run", "r", "--to", "repeated", *SMALL, "lr=1e-5").out
    before, after = files(lived, "r", 3), files(lived, "repeated", 3)
    assert all(torch.equal(before[name], value) for name, value in after.items())
    lived.train(4, *SMALL, "lr=1e-5", run="repeated")


def test_a_change_beside_the_data_exchanges_no_data(lived: Desk) -> None:
    """The task's own number of rows is another one, and so would other puzzles be."""
    lived("fork", "--run", "r", "--to", "seeded", "seed=3")
    mine, theirs = genesis(lived, "r"), genesis(lived, "seeded")
    assert theirs == {**mine, "seed": 3}
    lived.train(4, *SMALL, "seed=3", run="seeded")


def test_data_of_ones_own_is_never_exchanged_for_the_tasks_unasked(lived: Desk) -> None:
    named = tuple(f"data.{part}={_grids(lived.folder / f'{part}.csv', part)}" for part in ("train", "test"))
    lived.train(2, *SMALL, *named, run="own")
    another = Desk(lived.folder / "another", {"RELAY_STORE": str(lived.folder / "relay_store")}, lived.plugin)
    refused = another("fork", "--run", "own", "--to", "own2", "seed=3", code=78).err
    assert "data.train=generated" in refused
    lived("status", "--run", "own2", code=78)
    told = lived("fork", "--run", "own", "--to", "own2", "seed=3").out
    assert "fresh carry" in told and "validation rows" in told, "another seed draws other rows of the file"
    assert genesis(lived, "own2")["data"]["test"] == genesis(lived, "own")["data"]["test"]
    lived.train(3, *SMALL, *named, "seed=3", run="own2")


def test_another_network_is_refused_at_once_with_what_to_do(lived: Desk) -> None:
    refused = lived("fork", "--run", "r", "--to", "wide", "arch.hidden_size=64", "arch.puzzle_emb_ndim=64", code=65)
    assert "(32, 256)" in str(refused.raised(BadData)), "the shape of the checkpoint's, which does not fit"
    lived("status", "--run", "wide", code=78)
