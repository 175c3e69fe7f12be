# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Shared parts of the kernels of long attention: heads of 64 in tiles of 64 positions.

Units of work are dealt to the programs in turn: so few heads are under way at once, and what all units of a head read
again and again comes from the second-level cache.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from trm.kernels.specialized.tiles import store

HEAD = gl.constexpr(64)
"""Width of a head."""
LOG2E = 1.4426950408889634
GROUPS = gl.constexpr(3)
"""Computing groups of warps of a program. Three of them keep the matrix units busy: while two multiply, one applies
the softmax."""
MANY, FEW, AT_START = gl.constexpr(160), gl.constexpr(24), 128
"""Registers a thread of three computing groups and one loading warp: 3 MANY + FEW <= 4 AT_START."""


@gluon.jit
def turned_back(grad, cos_ptr, sin_ptr, first, L: gl.constexpr):
    """Gradient (64, HEAD) of positions from `first` on as they were before their rotation."""
    a, b = gl.split(gl.permute(gl.reshape(grad, (64, 2, HEAD // 2)), (0, 2, 1)))
    layout: gl.constexpr = a.type.layout
    row = first + gl.arange(0, 64, gl.SliceLayout(1, layout))
    at = row[:, None] * HEAD + gl.arange(0, HEAD // 2, gl.SliceLayout(0, layout))[None, :]
    real = (row < L)[:, None]
    cos, sin = gl.load(cos_ptr + at, mask=real, other=0.0), gl.load(sin_ptr + at, mask=real, other=0.0)
    both = gl.join(a * cos + b * sin, b * cos - a * sin)
    return gl.convert_layout(gl.reshape(gl.permute(both, (0, 2, 1)), (64, HEAD)), grad.type.layout)


@gluon.jit
def put(out, tile, at, value):
    """(64, HEAD) through shared memory to a block of out, once the block before has been read from there."""
    store(out, tile, tile.reshape((64, HEAD)), at, value, 0)


def tiles(length: int, block: int) -> tuple[int, int]:
    """How many tiles of `block` positions hold `length`, and how much of the last is computed: a power of two.

    ValueError below two tiles: the kernels begin a tile while they finish another.
    """
    full = (length - 1) // block
    if full < 1:
        raise ValueError(f"a sequence of {length} fills no tile of {block}")
    return full + 1, max(16, 1 << (length - full * block - 1).bit_length())
