"""What does not lead to the state of a checkpoint that shares its table is refused, and changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from relay.torch.statefile import STATE
from tests.trm.small import small
from tests.trm.tables import PUZZLES, begun, go, hash_of
from trm.checkpoint import JOURNAL, TABLE, table_file
from trm.interop import export_folder
from trm.refit import refit

pytestmark = pytest.mark.usefixtures("no_small_limit")


def change(file: str, how: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / file)
        how(tensors)
        save_file(tensors, folder / file)

    return damage


def note(**changes: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = json.loads((folder / STATE).read_text())
        content["table"] |= changes
        (folder / STATE).write_text(json.dumps(content))

    return damage


BASE = table_file(2)
DAMAGE: dict[str, Callable[[Path], None]] = {
    "no base": lambda folder: (folder / BASE).unlink(),
    "no journal": lambda folder: (folder / JOURNAL).unlink(),
    "a journal that is no file of tensors": lambda folder: (folder / JOURNAL).write_bytes(b"x" * 100),
    "a huge journal": lambda folder: os.truncate(folder / JOURNAL, 2**40),
    "a sign changed": change(JOURNAL, lambda t: t["signs"].__setitem__((0, 0), t["signs"][0, 0] ^ 1)),
    "a rate changed": change(JOURNAL, lambda t: t["rates"].__setitem__((0, 1), 0.5)),
    "rates that overflow": change(JOURNAL, lambda t: t["rates"].fill_(1e300)),
    "another row": change(JOURNAL, lambda t: t["rows"].__setitem__(0, min({*range(60)} - {*t["rows"].tolist()}))),
    "a row outside": change(JOURNAL, lambda t: t["rows"].__setitem__(0, PUZZLES)),
    "a step less": change(JOURNAL, lambda t: t.update(counts=t["counts"][:-1].clone(), rates=t["rates"][:-1].clone())),
    "one tensor more": change(JOURNAL, lambda t: t.update(more=torch.zeros(1))),
    "another type": change(JOURNAL, lambda t: t.update(rows=t["rows"].long())),
    "another base": change(BASE, lambda t: t[TABLE].add_(1)),
    "a base of another shape": change(BASE, lambda t: t.update({TABLE: t[TABLE][:-1].clone()})),
    "a base later than the step": note(base=99),
    "a base below 0": note(base=-1),
    "a base long ago": note(base=1),
    "another state's digest": note(state_hash="0" * 64),
    "no digest": note(state_hash=""),
    "a note with more in it": note(path="../x"),
}  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path, shelf) -> Path:
    workload = begun(tmp_path)
    go(workload, 2)
    shelf.commit(workload)
    go(workload, 3)
    return shelf.commit(workload)[0]


@pytest.mark.parametrize("what", DAMAGE)
def test_what_does_not_lead_to_the_state_is_refused_and_changes_nothing(tmp_path, checkpoint, what) -> None:
    workload = begun(tmp_path)
    before = hash_of(workload)
    DAMAGE[what](checkpoint)
    with pytest.raises(ValueError, match=r"journal|table|state\.json") as refused:
        workload.load(checkpoint)
    assert "\n" not in str(refused.value) and hash_of(workload) == before


ODD: dict[str, Callable[[Path], None]] = {
    "signs that are none": change(JOURNAL, lambda t: t.update(signs=t["signs"].float())),
    "rows of another type": change(JOURNAL, lambda t: t.update(rows=t["rows"].float())),
    "rates of another type": change(JOURNAL, lambda t: t.update(rates=t["rates"].long())),
    "a table of whole numbers": change(BASE, lambda t: t.update({TABLE: t[TABLE].int()})),
    "a table of half numbers": change(BASE, lambda t: t.update({TABLE: t[TABLE].bfloat16()})),
    "a table of one dimension": change(BASE, lambda t: t.update({TABLE: t[TABLE].flatten()})),
    "two tables": change(BASE, lambda t: t.update(more=torch.zeros(1))),
}


@pytest.mark.parametrize("what", ODD)
def test_who_reads_the_weights_alone_refuses_odd_files_too(tmp_path, checkpoint, what) -> None:
    """An export and a fork under other settings know no live state to compare with."""
    ODD[what](checkpoint)
    (tmp_path / "refitted").mkdir()
    for read in (
        lambda: export_folder(checkpoint, tmp_path / "out", {}),
        lambda: refit(checkpoint, tmp_path / "refitted", small(batch_size=4), small(batch_size=4).plain()),
    ):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            read()
