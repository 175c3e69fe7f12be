"""The rules of Sudoku on batches of grids of any box size; knows no files and no tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def units(cells: int) -> Tensor:
    """int64 (3 * side, side): the cells of each row, column and box of a grid with side^2 = cells."""
    side = math.isqrt(cells)
    box = math.isqrt(side)
    rows = torch.arange(cells).view(side, side)
    boxes = rows.view(box, box, box, box).transpose(1, 2).reshape(side, side)
    return torch.cat((rows, rows.T, boxes))


def solved(grids: Tensor) -> Tensor:
    """bool (N,): each row, column and box of the digit grids (N, cells) holds 1..side once.

    `side` powers of two add up to 2^1 + ... + 2^side only if they are all different.
    """
    side = math.isqrt(grids.shape[1])
    powers = torch.pow(2, grids.to(torch.int16))
    sums = torch.stack([powers[:, unit].sum(dim=1, dtype=torch.int16) for unit in units(grids.shape[1])])
    good: Tensor = (sums == 2 ** (side + 1) - 2).all(dim=0)
    return good


def agrees(puzzles: Tensor, grids: Tensor) -> Tensor:
    """bool (N,): no given of the puzzles (N, cells; 0 = blank) contradicts the grid beside it."""
    return ((puzzles == 0) | (puzzles == grids)).all(dim=1)
