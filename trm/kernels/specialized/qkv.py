# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The projection to queries, keys and values, the first two turned by their positions before they are written.

One warp loads, two groups of warps compute 64 token rows each, as in trm/kernels/specialized/gate_up.py, whose loads
these are. Knows no attention.
"""

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from trm.kernels.specialized.gate_up import DEPTH, LEAD, STAGES, _load
from trm.kernels.specialized.tiles import AT_START, CONSUMER, PRODUCER, barriers, descriptor, programs, share


@gluon.jit
def _angles(table_ptr, first, L: gl.constexpr, other, turned):
    """Half a head's angles (64, 1, 32) of token rows from `first` on; `other` unless `turned`."""
    pair: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16])
    row = (first + gl.arange(0, 64, gl.SliceLayout(1, pair))) % L
    at = row[:, None] * 64 + gl.arange(0, 32, gl.SliceLayout(0, pair))[None, :]
    return gl.load(table_ptr + at, mask=turned, other=other)


@gluon.jit
def _halves(x, WIDTH: gl.constexpr):
    """(64, 2 WIDTH) -> its halves of columns; no data moves."""
    return gl.split(gl.permute(gl.reshape(x, (64, 2, WIDTH)), (0, 2, 1)))


@gluon.jit
def _turned(x, cos, sin):
    """(64, 64), a head, turned."""
    a, b = _halves(x, 32)
    cos = gl.convert_layout(cos, a.type.layout, assert_trivial=True)
    sin = gl.convert_layout(sin, a.type.layout, assert_trivial=True)
    both = gl.join(a * cos - b * sin, b * cos + a * sin)
    return gl.reshape(gl.permute(both, (0, 2, 1)), (64, 64))


@gluon.jit
def _store(out, tile, at, value):
    """Through shared memory, once the last store but one has read it."""
    tma.store_wait(1)
    tile.store(value)
    fence_async_shared()
    tma.async_copy_shared_to_global(out, at, tile)


@gluon.jit
def _compute(out, cos_ptr, sin_ptr, xs, ws, hs, bars, start, stop, GROUP: gl.constexpr, L: gl.constexpr,
             TURNED: gl.constexpr, NT: gl.constexpr, KT: gl.constexpr, S: gl.constexpr):  # fmt: skip
    x_full, x_empty, w_full, w_empty, lead = bars
    acc = gl.zeros((64, 256), gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 256, 16]))
    i, loads = 0, 0
    for t in range(start, stop):
        fresh = (t == start) | (t % NT == 0)
        last = (t == stop - 1) | (t % NT == NT - 1)
        row, n = (t // NT) * 128 + 64 * GROUP, t % NT
        if GROUP == 1:
            mbarrier.wait(lead.index(0), (t - start) & 1)
        for k in gl.static_range(KT):
            mbarrier.wait(x_full.index(k), loads & 1, pred=fresh)
            mbarrier.wait(w_full.index(i % S), (i // S) & 1)
            acc = warpgroup_mma(
                xs.index(2 * k + GROUP), ws.index(i % S).permute((1, 0)), acc, use_acc=k > 0, is_async=True
            )
            if k > 0:
                acc = warpgroup_mma_wait(1, deps=(acc,))
                mbarrier.arrive(w_empty.index((i - 1) % S))
                mbarrier.arrive(x_empty.index(k - 1), pred=last)
                if GROUP == 0 and k == LEAD:
                    mbarrier.arrive(lead.index(0))
            i += 1
        cos = _angles(cos_ptr, row, L, 1.0, n < TURNED)
        sin = _angles(sin_ptr, row, L, 0.0, n < TURNED)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(w_empty.index((i - 1) % S))
        mbarrier.arrive(x_empty.index(KT - 1), pred=last)
        loads += fresh.to(gl.int32)
        low, high = _halves(acc, 128)
        first, second = _halves(low, 64)
        third, fourth = _halves(high, 64)
        at, one, other = n * 256, hs.index(2 * GROUP), hs.index(2 * GROUP + 1)
        _store(out, one, [row, at], _turned(first, cos, sin).to(out.dtype))
        _store(out, other, [row, at + 64], _turned(second, cos, sin).to(out.dtype))
        _store(out, one, [row, at + 128], _turned(third, cos, sin).to(out.dtype))
        _store(out, other, [row, at + 192], _turned(fourth, cos, sin).to(out.dtype))
    tma.store_wait(0)


@gluon.jit
def _qkv(x, w, out, cos_ptr, sin_ptr, rows, L: gl.constexpr, TURNED: gl.constexpr, NT: gl.constexpr, KT: gl.constexpr,
         BK: gl.constexpr, S: gl.constexpr):  # fmt: skip
    """out (rows, 256 NT) = x @ w.T; the first 256 TURNED columns, heads of 64, are turned. Rows: sequences of L."""
    xs = gl.allocate_shared_memory(x.dtype, [2 * KT, 64, BK], x.layout)
    ws = gl.allocate_shared_memory(w.dtype, [S, 256, BK], w.layout)
    hs = gl.allocate_shared_memory(out.dtype, [4, 64, 64], out.layout)
    bars = (barriers(KT, 1), barriers(KT, 2), barriers(S, 1), barriers(S, 2), barriers(1, 1))
    start, stop = share(gl.cdiv(rows, 128) * NT)
    gl.warp_specialize([
        (_compute, (out, cos_ptr, sin_ptr, xs, ws, hs, bars, start, stop, 0, L, TURNED, NT, KT, S)),
        (_compute, (out, cos_ptr, sin_ptr, xs, ws, hs, bars, start, stop, 1, L, TURNED, NT, KT, S)),
        (_load, (x, w, xs, ws, bars, start, stop, NT, KT, BK, S)),
    ], [4, 1], [CONSUMER, PRODUCER])  # fmt: skip


def project(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, L, D), w (3 D, D), D a multiple of 256 that fits shared memory (512), heads of 64 -> (B, L, 3 D)."""
    batch, length, width = x.shape
    out = x.new_empty(batch, length, len(w))
    _qkv[(programs(x.device),)](
        descriptor(x.view(-1, width), [64, DEPTH]), descriptor(w, [256, DEPTH]),
        descriptor(out.view(-1, len(w)), [64, 64]), cos, sin, batch * length, length, 2 * len(w) // 3 // 256,
        len(w) // 256, width // DEPTH, DEPTH, STAGES, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
    return out
