# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Turning gradients back by their positions, in place in shared memory."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

ROWS, WARPS = gl.constexpr(64), gl.constexpr(8)
"""Rows that all warps take at once."""


@gluon.jit
def widened(x):
    """bfloat16 as float32 by a shift and a mask; a cast takes three instructions a pair."""
    apart: gl.constexpr = "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;"
    return gl.inline_asm_elementwise(apart, "=r,=r,r", [x], dtype=gl.float32, is_pure=True, pack=2)


@gluon.jit
def angles(cos_ptr, sin_ptr, FIRST: gl.constexpr, L: gl.constexpr):
    """Cosines and sines of ROWS positions, zero from L on.

    A thread's lie one after another in the tables (L, 64), so that a warp reads whole lines.
    """
    half: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [WARPS, 1], [1, 0])
    row = FIRST + gl.arange(0, ROWS, gl.SliceLayout(1, half))[:, None]
    at = row * 64 + gl.arange(0, 32, gl.SliceLayout(0, half))[None, :]
    return gl.load(cos_ptr + at, mask=row < L, other=0.0), gl.load(sin_ptr + at, mask=row < L, other=0.0)


@gluon.jit
def turn_back(tile, cos, sin, FIRST: gl.constexpr):
    """ROWS rows of a tile (128, 64) from FIRST on; a thread holds the same eight columns of both halves of a row."""
    half: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [WARPS, 1], [1, 0])
    whole: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [0, 32]], [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]], [[8, 0], [16, 0], [32, 0]], [],
        [ROWS, 64],
    )  # fmt: skip
    x = widened(tile.slice(FIRST, ROWS).load(whole))
    a, b = gl.split(gl.permute(gl.reshape(x, (ROWS, 2, 32)), (0, 2, 1)))
    a, b = gl.convert_layout(a, half, assert_trivial=True), gl.convert_layout(b, half, assert_trivial=True)
    both = gl.join(a * cos + b * sin, b * cos - a * sin)
    tile.slice(FIRST, ROWS).store(gl.reshape(gl.permute(both, (0, 2, 1)), (ROWS, 64)).to(tile.dtype))
