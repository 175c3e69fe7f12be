"""A small workload of many puzzles, whose table checkpoints share; tests choose how much is small."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from relay.core.workload import Saved
from relay.torch import rng
from relay.torch.snapshot import state_hash
from tests.trm.small import small
from trm.data.dataset import Batch
from trm.model import Sizes
from trm.train import Step
from trm.workload import TrmWorkload

PUZZLES = 60
BATCH = 8
"""Of `small`."""


class ManyPuzzles(TrmWorkload):
    """Sudoku in which each row of a batch is some puzzle of its own."""

    def __init__(self, root: Path, step: Step | None = None, shared_from: int = 0, **changes: Any) -> None:
        super().__init__(small(**changes), root, "cpu", step, shared_from)
        self._sizes = Sizes(self._sizes.seq_len, self._sizes.vocab_size, PUZZLES)
        plain = self.data.train.batch_at

        def batch_at(seed: int, step: int, size: int) -> Batch:
            ids = rng.integers(0, step, 93, (size,), 0, PUZZLES).to(torch.int32)
            return replace(plain(seed, step, size), puzzle_identifiers=ids)

        self.data.train.batch_at = batch_at  # type: ignore[method-assign]


class Shelf:
    """Where checkpoints lie, each with all the files that it needs, as the relay would bring them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lent: dict[str, Path] = {}

    def commit(self, workload: ManyPuzzles, last: bool = False, lent: bool = True) -> tuple[Path, Saved]:
        folder = self.root / f"step_{workload.step}"
        workload.lend(frozenset(self.lent if lent else ()), last)
        taken = workload.snapshot()
        folder.mkdir()
        saved = taken.save(folder)
        for name in saved.borrows:
            shutil.copy(self.lent[name], folder / name)
        self.lent |= {name: folder / name for name in saved.lends}
        return folder, saved


def begun(tmp_path: Path, **more: object) -> ManyPuzzles:
    workload = ManyPuzzles(tmp_path / "data", **more)
    workload.start()
    return workload


def go(workload: ManyPuzzles, steps: int) -> None:
    workload.advance(workload.step + steps, lambda: False, None)


def hash_of(workload: ManyPuzzles) -> str:
    return state_hash(workload.state.canonical(), workload.step, 0)
