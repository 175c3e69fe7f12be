"""The workloads to time: training on one grid of Sudoku, or on made-up grids of ARC's shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from trm.config import Arch, TrainConfig
from trm.data.augment import sudoku
from trm.data.dataset import IGNORE, Batch, Dataset
from trm.model import Sizes
from trm.presets import preset

SIZES = Sizes(seq_len=81, vocab_size=11, num_identifiers=1)
"""Of 9x9 Sudoku."""


@dataclass(frozen=True)
class Case:
    """What is timed."""

    config: TrainConfig
    sizes: Sizes
    batches: Callable[[], Callable[[int], Batch]]
    """Returns a function on the GPU that gives the batch of a step."""


def case(task: str) -> Case:
    """A preset on one grid with cells blanked, or ARC's shape (reference/trm.md 13, 16)."""
    if task == "arc":
        config = TrainConfig(task="arc", batch_size=192, arch=Arch(L_cycles=4), puzzle_emb_lr=1e-2)
        sizes = Sizes(seq_len=900, vocab_size=12, num_identifiers=876_406)
        return Case(config, sizes, lambda: partial(canvases, config.batch_size, sizes))
    config = preset(task)

    def batches() -> Callable[[int], Batch]:
        data = grids().to("cuda")
        return lambda step: data.batch_at(config.seed, step, config.batch_size)

    return Case(config, SIZES, batches)


def canvases(rows: int, sizes: Sizes, step: int) -> Batch:
    """Grids of random height and width on a 30 x 30 canvas, to be relabelled; every row is a separate puzzle."""
    g = torch.Generator("cuda").manual_seed(step)
    side = torch.arange(30, device="cuda")
    height, width = torch.randint(5, 31, (2, rows, 1), generator=g, device="cuda")
    inside = ((side < height)[:, :, None] & (side < width)[:, None, :]).flatten(1)
    tokens = torch.randint(2, 12, inside.shape, generator=g, device="cuda", dtype=torch.int32)
    labels = torch.where(inside, (tokens + 1) % 10 + 2, IGNORE)
    puzzles = torch.randint(1, sizes.num_identifiers, (rows,), generator=g, device="cuda", dtype=torch.int32)
    return Batch(torch.where(inside, tokens, 0), labels, puzzles)


def grids(count: int = 1000, givens: float = 0.3) -> Dataset:
    """A valid grid with random cells blanked, `count` times: sufficient for timing and losses."""
    cell = torch.arange(81)
    row, column = cell // 9, cell % 9
    solution = (row * 3 + row // 3 + column) % 9 + 2
    labels = solution.to(torch.uint8).repeat(count, 1)
    shown = torch.rand(count, 81, generator=torch.Generator().manual_seed(0)) < givens
    return Dataset(torch.where(shown, labels, 1), labels, 11, sudoku)
