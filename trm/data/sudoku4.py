"""All 4x4 Sudoku grids, and minimal puzzles from three disjoint sets of them.

There are 288 grids. A set of givens has a unique solution if exactly one of them matches, so no solver is needed.
The symmetries of Sudoku map every grid to a third of all grids or to two thirds of them: augmentation would turn
training grids into test grids, and is never used with these puzzles.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from relay.torch import rng
from relay.torch.faults import DataError
from relay.torch.rng import Stream
from trm.data import sudoku

CELLS = 16
FULL = 2**CELLS - 1
"""Givens are a bit mask: bit c is cell c."""


TEST_GRIDS, VALID_GRIDS = 58, 30
"""Training has the other 200."""
TEST_PUZZLES, VALID_PUZZLES = 1000, 500


class Puzzles(NamedTuple):
    """Tokens, both uint8 (N, 16): blank 1, digit d as d + 1."""

    inputs: Tensor
    labels: Tensor


def grids() -> Tensor:
    """uint8 (288, 16): the digits of every solved grid, in lexicographic order."""
    partial: list[tuple[int, ...]] = [()]
    for cell in range(CELLS):
        seen = [peer for unit in sudoku.units(CELLS).tolist() if cell in unit for peer in unit if peer < cell]
        partial = [(*grid, d) for grid in partial for d in range(1, 5) if d not in {grid[peer] for peer in seen}]
    return torch.tensor(partial, dtype=torch.uint8)


@lru_cache(maxsize=2)
def build(train_puzzles: int, seed: int = 0) -> tuple[Puzzles, Puzzles, Puzzles]:
    """(train, valid, test): different puzzles, 500 for valid and 1,000 for test, from 200, 30 and 58 grids.

    Every puzzle has one solution, and none after any given is removed; the test puzzles have 4.4 givens on average.
    A function of the arguments. Callers share its tensors and must not change them. Raises DataError if the 200
    grids have fewer puzzles (there are about 59,000).
    """
    solutions = grids()
    unclear = ambiguous(solutions)
    order = rng.permutations(seed, 0, Stream.BUILD, 1, len(solutions))[0]
    test, valid, train = order.tensor_split([TEST_GRIDS, TEST_GRIDS + VALID_GRIDS])
    return (
        _draw(solutions, unclear, train, train_puzzles, seed, 1),
        _draw(solutions, unclear, valid, VALID_PUZZLES, seed, 2),
        _draw(solutions, unclear, test, TEST_PUZZLES, seed, 3),
    )


def _draw(solutions: Tensor, unclear: Tensor, own: Tensor, count: int, seed: int, step: int) -> Puzzles:
    """`count` different puzzles whose solutions are among the rows `own` of `solutions`."""
    tries = 2 * count
    grid = own[rng.integers(seed, step, Stream.BUILD, (tries,), 0, len(own))]
    order = rng.permutations(seed, step, Stream.BUILD, tries, CELLS, start=tries)
    different = torch.unique(torch.stack((grid, minimal_givens(unclear, grid, order)), dim=1), dim=0)
    if len(different) < count:
        raise DataError(f"4x4 Sudoku has too few puzzles for data.train_rows={count:,}. Use 20,000 or fewer.")
    chosen = rng.permutations(seed, step, Stream.BUILD, 1, len(different), start=tries * (CELLS + 1))[0, :count]
    grid, givens = different[chosen].unbind(dim=1)
    answers = solutions[grid]
    shown = (givens[:, None] >> torch.arange(CELLS)) & 1
    return Puzzles(inputs=(answers * shown + 1).to(torch.uint8), labels=answers + 1)


def minimal_givens(unclear: Tensor, grid: Tensor, order: Tensor) -> Tensor:
    """int64 (N,): givens left when cells are blanked in the given order wherever the solution stays unique.

    unclear: result of `ambiguous`; grid: (N,) row of each puzzle's solution; order: (N, 16) cells. No given that is
    left can be removed: it was needed when its turn came, and fewer givens only admit more solutions.
    """
    givens = torch.full_like(grid, FULL)
    for cell in order.unbind(dim=1):
        fewer = givens & ~(1 << cell)
        givens = torch.where(unclear[grid, fewer], givens, fewer)
    return givens


def ambiguous(solutions: Tensor) -> Tensor:
    """bool (288, 65536): whether another grid shows the same digits as this grid under each mask of givens.

    Two grids agree exactly under the masks within the cells they share, so each pair marks those cells, and every mark
    spreads to the masks with one bit less.
    """
    count = len(solutions)
    equal = solutions[:, None, :] == solutions[None, :, :]
    shared = (equal.to(torch.int64) << torch.arange(CELLS)).sum(dim=2)
    table = torch.zeros(count, FULL + 1, dtype=torch.bool)
    table.scatter_(1, shared, True)
    table[:, FULL] = False
    for bit in range(CELLS):
        without, with_bit = table.view(count, -1, 2, 1 << bit).unbind(dim=2)
        without |= with_bit
    return table
