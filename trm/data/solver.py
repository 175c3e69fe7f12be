"""A backtracking Sudoku solver for any box size, compiled by numba. Imported only to generate puzzles.

The next cell is always one with the fewest candidates, the first of these. A guess is a digit tried in a cell that has
two or more, so the number of guesses in the whole search, beyond the last solution, grades a puzzle: relabelling digits
does not change it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
_FOUND, _GUESSES = 0, 1


class Result(NamedTuple):
    """The result of a search."""

    solutions: int
    """Number of solutions, counted up to the limit."""
    guesses: int
    first: Ints
    """(cells,) digits of the first solution, zeros if there is none."""


def solve(puzzle: Ints, order: Ints | None = None, limit: int = 2) -> Result:
    """Search for up to `limit` solutions of the digits (cells,), 0 = blank.

    order: (cells, side), the order in which each cell tries digits; ascending if None. Unique means 1 of limit 2.
    """
    side = math.isqrt(len(puzzle))
    tally, first = np.zeros(2, np.int64), np.zeros(len(puzzle), np.int64)
    _solve(puzzle.copy(), _ascending(side) if order is None else order, limit, tally, first)
    return Result(int(tally[_FOUND]), int(tally[_GUESSES]), first)


def minimal(solution: Ints, removal: Ints) -> Ints:
    """(cells,) digits: the solution with cells blanked in the order `removal` while it stays unique."""
    puzzle = solution.copy()
    _blank(puzzle, removal, _ascending(math.isqrt(len(solution))))
    return puzzle


def _ascending(side: int) -> Ints:
    return np.tile(np.arange(1, side + 1), (side * side, 1))


@njit()
def _units(cell: int, side: int) -> tuple[int, int, int]:
    """Row, column and box of a cell, numbered through 0 .. 3 * side - 1."""
    box = int(np.sqrt(side))
    row, column = cell // side, cell % side
    return row, side + column, 2 * side + row // box * box + column // box


@njit()
def _flip(used: Ints, cell: int, digit: int) -> None:
    """Mark a digit as used in the three units of a cell, or remove the mark."""
    for unit in _units(cell, len(used) // 3):
        used[unit] ^= 1 << digit


@njit()
def _candidates(used: Ints, cell: int) -> int:
    """Bit mask of the digits that no unit of the cell holds."""
    side = len(used) // 3
    row, column, box = _units(cell, side)
    free: int = ((2 << side) - 2) & ~(used[row] | used[column] | used[box])
    return free


@njit()
def _count(mask: int) -> int:
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@njit()
def _narrowest(grid: Ints, used: Ints) -> tuple[int, int, int]:
    """(cell, its candidates, their number) of the empty cell with the fewest; cell -1 if none is empty."""
    best, mask, fewest = -1, 0, len(grid)
    for cell in range(len(grid)):
        if grid[cell] == 0:
            candidates = _candidates(used, cell)
            number = _count(candidates)
            if number < fewest:
                best, mask, fewest = cell, candidates, number
                if number < 2:
                    break
    return best, mask, fewest


@njit()
def _search(grid: Ints, used: Ints, order: Ints, limit: int, tally: Ints, first: Ints) -> None:
    """Complete the grid in every way, up to the limit; the grid is as before on return."""
    cell, candidates, number = _narrowest(grid, used)
    if cell < 0:
        tally[_FOUND] += 1
        if tally[_FOUND] == 1:
            first[:] = grid
        return
    for digit in order[cell]:
        if candidates >> digit & 1:
            tally[_GUESSES] += number > 1
            grid[cell] = digit
            _flip(used, cell, digit)
            _search(grid, used, order, limit, tally, first)
            _flip(used, cell, digit)
            grid[cell] = 0
            if tally[_FOUND] == limit:
                return


@njit()
def _solve(grid: Ints, order: Ints, limit: int, tally: Ints, first: Ints) -> None:
    """Mark the givens, then search; givens that contradict each other have no solution."""
    used = np.zeros(3 * order.shape[1], np.int64)
    for cell in range(len(grid)):
        if grid[cell]:
            if not _candidates(used, cell) >> grid[cell] & 1:
                return
            _flip(used, cell, grid[cell])
    _search(grid, used, order, limit, tally, first)


@njit()
def _blank(puzzle: Ints, removal: Ints, order: Ints) -> None:
    first = np.zeros_like(puzzle)
    for cell in removal:
        digit = puzzle[cell]
        puzzle[cell] = 0
        tally = np.zeros(2, np.int64)
        _solve(puzzle.copy(), order, 2, tally, first)
        if tally[_FOUND] != 1:
            puzzle[cell] = digit
