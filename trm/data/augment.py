"""Symmetries of a Sudoku of any box size and of a square, drawn per row of a batch on the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from relay.torch import rng
from relay.torch.rng import Stream


def sudoku(inputs: Tensor, labels: Tensor, seed: int, step: int | Tensor) -> tuple[Tensor, Tensor]:
    """A random symmetry for each row, the same for its puzzle and solution.

    inputs, labels: (B, b^4) tokens of any integer dtype: 0 padding, 1 blank, digit d as d + 1. Row j's draw depends on
    (seed, step, j) only. The law is that of the reference's builder: digits relabelled, then perhaps transposed, then
    bands, rows inside bands, stacks and columns inside stacks permuted, all uniformly (reference section 10).
    """
    rows, cells = inputs.shape
    box = math.isqrt(math.isqrt(cells))
    source = _cells(seed, step, rows, box, inputs.device)
    tokens = _tokens(seed, step, rows, box * box, inputs.device)
    moved = (tokens.gather(1, x.gather(1, source).to(torch.int64)) for x in (inputs, labels))
    new_inputs, new_labels = (x.to(inputs.dtype) for x in moved)
    return new_inputs, new_labels


def dihedral(inputs: Tensor, labels: Tensor, seed: int, step: int | Tensor) -> tuple[Tensor, Tensor]:
    """One of the eight symmetries of a square for each row, the same for its puzzle and solution.

    inputs, labels: (B, side^2) tokens. Numbered as in reference/trm.md 10. Row j's draw depends on (seed, step, j).
    """
    rows, cells = inputs.shape
    chosen = rng.integers(seed, step, Stream.DIHEDRAL, (rows,), 0, SYMMETRIES, inputs.device)
    source = _square_symmetries(math.isqrt(cells)).to(inputs.device)[chosen]
    return inputs.gather(1, source), labels.gather(1, source)


SYMMETRIES = 8
"""Of a square."""


def turned(inputs: Tensor, labels: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Symmetry `number` of a square, as `dihedral` numbers them, for every row."""
    source = _square_symmetries(math.isqrt(inputs.shape[1]))[number].to(inputs.device)
    return inputs[:, source], labels[:, source]


def _square_symmetries(side: int) -> Tensor:
    """int64 (8, side^2): the source of each cell: four quarter turns, two flips, two reflections."""
    grid = torch.arange(side * side).view(side, side)
    turned = [grid.rot90(k) for k in range(4)]
    return torch.stack([x.flatten() for x in (*turned, grid.fliplr(), grid.flipud(), grid.T, turned[1].fliplr())])


def _tokens(seed: int, step: int | Tensor, rows: int, side: int, device: rng.Device) -> Tensor:
    """int64 (rows, side + 2): the new value of each token; padding and blank stay."""
    fixed = torch.arange(2, device=device).expand(rows, 2)
    return torch.cat((fixed, rng.permutations(seed, step, Stream.DIGITS, rows, side, device) + 2), dim=1)


def _cells(seed: int, step: int | Tensor, rows: int, box: int, device: rng.Device) -> Tensor:
    """int64 (rows, side^2): the source of each cell."""
    side = box * box
    down = _lines(seed, step, Stream.ROWS, rows, box, device)[:, :, None]
    across = _lines(seed, step, Stream.COLUMNS, rows, box, device)[:, None, :]
    transposed = rng.integers(seed, step, Stream.TRANSPOSE, (rows, 1, 1), 0, 2, device) == 1
    return torch.where(transposed, across * side + down, down * side + across).reshape(rows, side * side)


def _lines(seed: int, step: int | Tensor, stream: Stream, rows: int, box: int, device: rng.Device) -> Tensor:
    """int64 (rows, side): a permutation of the lines that keeps each band together."""
    draws = rng.permutations(seed, step, stream, rows * (box + 1), box, device).view(rows, box + 1, box)
    bands, inside = draws[:, 0, :, None], draws[:, 1:, :]
    return (bands * box + inside).reshape(rows, box * box)
