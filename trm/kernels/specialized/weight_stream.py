# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The loading warp's part in the token mixer's kernels: weights in chunks, around and around."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def load_weights(wgu, wd, us, ds, bars, i, CHUNKS: gl.constexpr, C: gl.constexpr, S: gl.constexpr):
    """All chunks once, into S slots; i counts chunks so far. bars: up full and empty, down full and empty."""
    u_full, u_empty, d_full, d_empty = bars
    for c in range(CHUNKS):
        slot = i % S
        phase = ((i // S) & 1) ^ 1
        mbarrier.wait(u_empty.index(slot), phase)
        mbarrier.expect(u_full.index(slot), 2 * C * 128 * 2)
        tma.async_copy_global_to_shared(wgu, [2 * C * c, 0], u_full.index(slot), us.index(slot))
        mbarrier.wait(d_empty.index(slot), phase)
        mbarrier.expect(d_full.index(slot), C * 128 * 2)
        tma.async_copy_global_to_shared(wd, [C * c, 0], d_full.index(slot), ds.index(slot))
        i += 1
    return i
