"""A small workload of many puzzles, whose table checkpoints share; tests choose how much is small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.trm.test_workload import small
from trm import rng
from trm.data.dataset import Batch
from trm.model import Sizes
from trm.train import Step
from trm.workload import TrmWorkload

PUZZLES = 60


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
