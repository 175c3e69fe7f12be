# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Turning gradients back by their positions, in place in shared memory. Knows no attention and no products."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

ROWS, WARPS = gl.constexpr(64), gl.constexpr(8)
"""Rows that all warps take at once."""


@gluon.jit
def _turn_back(tile, cos, sin, FIRST: gl.constexpr):
    """Rows from FIRST on; a thread holds the same eight columns of both halves of a row."""
    half: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [WARPS, 1], [1, 0])
    whole: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [0, 32]], [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]], [[8, 0], [16, 0], [32, 0]], [],
        [ROWS, 64],
    )  # fmt: skip
    x = tile.slice(FIRST, ROWS).load(whole).to(gl.float32)
    a, b = gl.split(gl.permute(gl.reshape(x, (ROWS, 2, 32)), (0, 2, 1)))
    a, b = gl.convert_layout(a, half, assert_trivial=True), gl.convert_layout(b, half, assert_trivial=True)
    both = gl.join((a * cos + b * sin).to(tile.dtype), (b * cos - a * sin).to(tile.dtype))
    tile.slice(FIRST, ROWS).store(gl.reshape(gl.permute(both, (0, 2, 1)), (ROWS, 64)))


@gluon.jit
def turn_back(one, two, cos_ptr, sin_ptr, L: gl.constexpr):
    """Turn the rows of two tiles (128, 64) back by their position; rows from L on become zero.

    A thread's angles lie one after another in the tables (L, 64), so that a warp reads whole lines.
    """
    half: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [WARPS, 1], [1, 0])
    for first in gl.static_range(0, 128, ROWS):
        row = first + gl.arange(0, ROWS, gl.SliceLayout(1, half))[:, None]
        at = row * 64 + gl.arange(0, 32, gl.SliceLayout(0, half))[None, :]
        cos, sin = gl.load(cos_ptr + at, mask=row < L, other=0.0), gl.load(sin_ptr + at, mask=row < L, other=0.0)
        _turn_back(one, cos, sin, first)
        _turn_back(two, cos, sin, first)
