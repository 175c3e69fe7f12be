# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""A batch of puzzles, gathered, transformed and widened in one launch; the definition is trm/data's, bit for bit.

In plain operations it is some three hundred launches a step, which cost a GPU a millisecond and a busy CPU more.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from relay.torch import rng
from relay.torch.kernels.digest import mix
from relay.torch.rng import Stream


@triton.jit
def _sort_key(key, index, column, WIDTH: tl.constexpr, GAMMA: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    """The sort key of relay/torch/rng.py's permutations: random bits, the lowest of them replaced by the column."""
    bits = mix(key + (index + tl.full((), 1, tl.int64)) * GAMMA, A, B)
    return ((bits >> WIDTH) << WIDTH) | column


@triton.jit
def _permuted(key, first, position, N: tl.constexpr, WIDTH: tl.constexpr, GAMMA: tl.constexpr, A: tl.constexpr,
              B: tl.constexpr):  # fmt: skip
    """Element `position` of the permutation of 0..N-1 whose bits start at index `first`."""
    found = position * 0
    for i in tl.static_range(N):
        mine = _sort_key(key, first + i, i, WIDTH, GAMMA, A, B)
        rank = position * 0
        for j in tl.static_range(N):
            rank += (_sort_key(key, first + j, j, WIDTH, GAMMA, A, B) < mine).to(tl.int32)
        found = tl.where(rank == position, i, found)
    return found


@triton.jit
def _moved(key, row, line, BOX: tl.constexpr, WIDTH: tl.constexpr, GAMMA: tl.constexpr, A: tl.constexpr,
           B: tl.constexpr):  # fmt: skip
    """Where a line comes from: bands are permuted, and lines inside each."""
    group = row * (BOX + 1)
    band = _permuted(key, group * BOX + line * 0, line // BOX, BOX, WIDTH, GAMMA, A, B)
    inside = _permuted(key, (group + 1 + line // BOX) * BOX, line % BOX, BOX, WIDTH, GAMMA, A, B)
    return band * BOX + inside


@triton.jit
def _ranks(key, row, SIDE: tl.constexpr, WIDTH: tl.constexpr, GAMMA: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
           BLOCK: tl.constexpr):  # fmt: skip
    """(BLOCK,): the place of each digit in the row's permutation; other places are SIDE and more."""
    digit = tl.arange(0, BLOCK)
    keys = _sort_key(key, row * SIDE + digit, digit, WIDTH, GAMMA, A, B)
    before = ((keys[None, :] < keys[:, None]) & (digit < SIDE)[None, :]).to(tl.int32)
    return tl.where(digit < SIDE, tl.sum(before, axis=1), SIDE)


@triton.jit
def _relabelled(tokens, ranks, BLOCK: tl.constexpr):
    """Digits by the permutation; padding and blank stay."""
    chosen = ranks[None, :] == (tokens - 2)[:, None]
    digit = tl.sum(tl.where(chosen, tl.arange(0, BLOCK)[None, :], 0), axis=1) + 2
    return tl.where(tokens < 2, tokens, digit)


@triton.jit(do_not_specialize=["digits", "transpose", "rows_key", "columns"])
def _batch(inputs_ptr, labels_ptr, rows_ptr, new_inputs_ptr, new_labels_ptr, digits, transpose, rows_key, columns,
           IGNORE: tl.constexpr, AUGMENT: tl.constexpr, CELLS: tl.constexpr, BOX: tl.constexpr, OF_BOX: tl.constexpr,
           OF_SIDE: tl.constexpr, DIGITS: tl.constexpr, GAMMA: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
           BLOCK: tl.constexpr):  # fmt: skip
    """One program: row b of the batch. OF_BOX, OF_SIDE: bits of a permutation's largest element."""
    SIDE: tl.constexpr = BOX * BOX
    row = tl.program_id(0)
    cell = tl.arange(0, BLOCK)
    real = cell < CELLS
    source = cell
    if AUGMENT:
        wide = cell.to(tl.int64)
        down = _moved(rows_key, row, wide // SIDE, BOX, OF_BOX, GAMMA, A, B)
        across = _moved(columns, row, wide % SIDE, BOX, OF_BOX, GAMMA, A, B)
        turned = mix(transpose + (row + tl.full((), 1, tl.int64)) * GAMMA, A, B) < 0
        source = tl.where(turned, across * SIDE + down, down * SIDE + across)
    start = tl.load(rows_ptr + row) * CELLS
    x = tl.load(inputs_ptr + start + source, mask=real, other=0).to(tl.int32)
    y = tl.load(labels_ptr + start + source, mask=real, other=0).to(tl.int32)
    if AUGMENT:
        ranks = _ranks(digits, row, SIDE, OF_SIDE, GAMMA, A, B, DIGITS)
        x = _relabelled(x, ranks, DIGITS)
        y = _relabelled(y, ranks, DIGITS)
    at = row * CELLS + cell
    tl.store(new_inputs_ptr + at, x, mask=real)
    tl.store(new_labels_ptr + at, tl.where(y == 0, IGNORE, y), mask=real)


def batch(
    inputs: Tensor, labels: Tensor, rows: Tensor, seed: int, step: int, ignore: int, symmetries: bool
) -> tuple[Tensor, Tensor]:
    """inputs and labels, int32 (B, cells), of puzzles `rows` (int64, (B,)) out of uint8 (N, cells).

    symmetries: apply trm/data/augment.py's `sudoku`. A label of 0 becomes `ignore`.
    """
    cells = inputs.shape[1]
    box = math.isqrt(math.isqrt(cells)) if symmetries else 1
    new_inputs, new_labels = (inputs.new_empty(len(rows), cells, dtype=torch.int32) for _ in range(2))
    keys = [rng.key(seed, step, each) for each in (Stream.DIGITS, Stream.TRANSPOSE, Stream.ROWS, Stream.COLUMNS)]
    gamma, factors = rng.constants()
    _batch[(len(rows),)](
        inputs, labels, rows, new_inputs, new_labels, *keys, ignore, symmetries, cells, box, (box - 1).bit_length(),
        (box * box - 1).bit_length(), triton.next_power_of_2(box * box), gamma, *factors,
        triton.next_power_of_2(cells), num_warps=4,
    )  # fmt: skip
    return new_inputs, new_labels
