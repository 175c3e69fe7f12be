# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The output projection added to its rows, with the squares of the sums for a norm."""

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from trm.kernels.specialized.streamed import DEPTH, period, stream
from trm.kernels.specialized.tiles import AT_START, descriptor, programs

STAGES = 6
"""Of the weight: nothing is staged on its way out."""
WIDE = gl.constexpr(gl.DistributedLinearLayout(
    reg_bases=[[0, 1], [0, 2], [0, 4], [0, 32], [8, 0], [0, 64], [64, 0]],
    lane_bases=[[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]], warp_bases=[[16, 0], [32, 0]], block_bases=[],
    shape=[128, 128],
))  # fmt: skip
"""A thread's products if the weight's rows are as `spread` puts them: 16 bytes of a row, four threads 64."""


@gluon.jit
def _begin(row, _args):
    """Nothing of the rows is kept."""
    return row


@gluon.jit
def _finish(acc, row, tile, GROUP: gl.constexpr, args, _kept):
    """Add a tile to its place, and write its share of the squares of each row."""
    x_ptr, out_ptr, squares_ptr, rows = args[0], args[1], args[2], args[3]
    N: gl.constexpr = args[4]
    split = gl.permute(gl.reshape(acc, (128, 4, 4, 4, 2)), (0, 1, 3, 2, 4))
    value = gl.convert_layout(gl.reshape(split, (128, 128)), WIDE)
    at = row + gl.arange(0, 128, gl.SliceLayout(1, WIDE))
    column = tile * 128 + gl.arange(0, 128, gl.SliceLayout(0, WIDE))
    place = at.to(gl.int64)[:, None] * N + column[None, :]
    real = (at < rows)[:, None]
    x = gl.load(x_ptr + place, mask=real, other=0.0).to(gl.float32)
    if args[5]:
        x *= gl.load(args[6] + at, mask=at < rows, other=0.0)[:, None]
    value += x
    gl.store(out_ptr + place, value.to(out_ptr.dtype.element_ty), mask=real)
    gl.store(squares_ptr + at * (N // 128) + tile, gl.sum(value * value, axis=1), mask=at < rows)


@gluon.jit
def _out(mixed, w, x, out, squares, rstd, rows, around, NT: gl.constexpr, KT: gl.constexpr, BK: gl.constexpr,
         S: gl.constexpr, SCALED: gl.constexpr):  # fmt: skip
    """out (rows, 128 NT) = x + mixed @ w.T, and the squares of each 128 columns of it, (rows, NT). SCALED: x * rstd."""
    stream(mixed, w, rows, around, NT, KT, BK, S, _begin, _finish, (x, out, squares, rows, NT * 128, SCALED, rstd))


def spread(w: Tensor, target: Tensor) -> None:
    """Copy a weight so that eight of a thread's products are adjacent; casts."""
    target.view(-1, 4, 4, 2, w.shape[1]).copy_(w.view(-1, 4, 4, 2, w.shape[1]).transpose(1, 2))


def add(x: Tensor, mixed: Tensor, w: Tensor, out: Tensor, rstd: Tensor | None = None) -> Tensor:
    """out = x + mixed @ w.T, (rows, D), out may be x, w as `spread` put it, D a multiple of 256 that fits (512).

    rstd, float32 (rows,): factors of x. Returns the sums of out's squares, each 128 (rows, D / 128).
    """
    rows, width = x.shape
    squares = x.new_empty(rows, width // 128, dtype=torch.float32)
    count = programs(x.device)
    _out[(count,)](
        descriptor(mixed, [128, DEPTH]), descriptor(w, [128, DEPTH]), x, out, squares,
        squares if rstd is None else rstd, rows, period(rows, count), width // 128, mixed.shape[1] // DEPTH, DEPTH,
        STAGES, rstd is not None, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
    return squares
