"""Breadth-first search through mazes, compiled by numba. Imported only to make or compare labels.

Mazes have many shortest paths. The official label is that of this search: from S, the first parent of a cell is
kept, neighbors are tried Down, Left, Right, Up.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray


def search(free: NDArray[np.bool_], start: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(steps from the start, -1 where unreachable; parent, -1 for none) of each cell. free: (side^2,)."""
    steps, parents = np.full(len(free), -1, np.int32), np.full(len(free), -1, np.int32)
    _search(free, start, math.isqrt(len(free)), steps, parents)
    return steps, parents


def path(parents: NDArray[np.int32], end: int) -> list[int]:
    """The cells from the start to `end`, both included."""
    cells = [end]
    while (cell := int(parents[cells[-1]])) >= 0:
        cells.append(cell)
    return cells[::-1]


def first_hard(free: NDArray[np.bool_], picks: NDArray[np.float32], shortest: int) -> tuple[int, int]:
    """(row, start) of the first maze with a cell `shortest` - 1 steps or more from the start; (-1, -1) if none has one.

    free: (rows, side^2). The start is the cell farthest from one that picks (rows,), in [0, 1), choose.
    """
    cells = free.shape[1]
    steps, parents = np.empty(cells, np.int32), np.empty(cells, np.int32)
    row, start = _first_hard(free, picks, math.isqrt(cells), shortest, steps, parents)
    return int(row), int(start)


@njit(cache=True)
def _first_hard(free, picks, side, shortest, steps, parents):  # type: ignore[no-untyped-def]  # pragma: no cover
    for row in range(len(free)):
        cells = np.flatnonzero(free[row])
        if len(cells) == 0:
            continue
        picked = cells[int(picks[row] * len(cells))]
        start = _farthest(free[row], picked, side, steps, parents)
        end = _farthest(free[row], start, side, steps, parents)
        if steps[end] >= shortest - 1:
            return row, start
    return -1, -1


@njit(cache=True)
def _farthest(free, start, side, steps, parents):  # type: ignore[no-untyped-def]  # pragma: no cover
    steps[:] = -1
    parents[:] = -1
    _search(free, start, side, steps, parents)
    return np.argmax(steps)


@njit(cache=True)
def _search(free, start, side, steps, parents):  # type: ignore[no-untyped-def]  # pragma: no cover
    queue = np.empty(len(free), np.int32)
    queue[0], steps[start], head, tail = start, 0, 0, 1
    while head < tail:
        cell = queue[head]
        head += 1
        row, column = cell // side, cell % side
        for move in range(4):
            if move == 0:
                inside, other = row + 1 < side, cell + side
            elif move == 1:
                inside, other = column > 0, cell - 1
            elif move == 2:
                inside, other = column + 1 < side, cell + 1
            else:
                inside, other = row > 0, cell - side
            if inside and free[other] and steps[other] < 0:
                steps[other], parents[other] = steps[cell] + 1, cell
                queue[tail] = other
                tail += 1
