# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Channel gate and up with SwiGLU: one warp loads, two groups of warps compute 64 token rows each. Knows no recursion.

The rows of x stay in shared memory while all of the weight streams by; both groups read its stages. The second group
starts each tile LEAD stages late, so that one multiplies while the other applies the activation.
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

from trm.kernels.specialized.tiles import (
    AT_START,
    CONSUMER,
    PRODUCER,
    barriers,
    descriptor,
    programs,
    share,
    split_pairs,
    swiglu,
)

DEPTH, STAGES, LEAD = 32, 4, gl.constexpr(2)
"""Inputs of a stage, stages of the weight, and stages by which the first group leads."""


@gluon.jit
def _load(x, w, xs, ws, bars, start, stop, NT: gl.constexpr, KT: gl.constexpr, BK: gl.constexpr, S: gl.constexpr):
    x_full, x_empty, w_full, w_empty, _lead = bars
    i, loads = 0, 0
    for t in range(start, stop):
        m, n = (t // NT) * 128, (t % NT) * 256
        fresh = (t == start) | (t % NT == 0)
        for k in gl.static_range(KT):
            slot = i % S
            mbarrier.wait(w_empty.index(slot), ((i // S) & 1) ^ 1)
            mbarrier.wait(x_empty.index(k), (loads & 1) ^ 1, pred=fresh)
            mbarrier.expect(x_full.index(k), 256 * BK, pred=fresh)
            tma.async_copy_global_to_shared(x, [m, k * BK], x_full.index(k), xs.index(2 * k), pred=fresh)
            tma.async_copy_global_to_shared(x, [m + 64, k * BK], x_full.index(k), xs.index(2 * k + 1), pred=fresh)
            mbarrier.expect(w_full.index(slot), 512 * BK)
            tma.async_copy_global_to_shared(w, [n, k * BK], w_full.index(slot), ws.index(slot))
            i += 1
        loads += fresh.to(gl.int32)


@gluon.jit
def _store(out, tile, at, value):
    """Through shared memory, once the store before has read it."""
    tma.store_wait(0)
    tile.store(value)
    fence_async_shared()
    tma.async_copy_shared_to_global(out, at, tile)


@gluon.jit
def _finish(h, gu, tile, acc, row, n, KEEP: gl.constexpr):
    """Write hidden values, and products in halves of 128, of a group's (64, 256) products."""
    if KEEP:
        low, high = gl.split(gl.permute(gl.reshape(acc, (64, 2, 128)), (0, 2, 1)))
        _store(gu, tile, [row, n * 256], low.to(h.dtype))
    gate, up = split_pairs(acc, 64, 128, 64)
    hidden = swiglu(gate, up).to(h.dtype)
    if KEEP:
        _store(gu, tile, [row, n * 256 + 128], high.to(h.dtype))
    _store(h, tile, [row, n * 128], hidden)


@gluon.jit
def _compute(h, gu, xs, ws, hs, bars, start, stop, GROUP: gl.constexpr, NT: gl.constexpr, KT: gl.constexpr,
             S: gl.constexpr, KEEP: gl.constexpr):  # fmt: skip
    x_full, x_empty, w_full, w_empty, lead = bars
    acc = gl.zeros((64, 256), gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 256, 16]))
    i, loads = 0, 0
    for t in range(start, stop):
        fresh = (t == start) | (t % NT == 0)
        last = (t == stop - 1) | (t % NT == NT - 1)
        if GROUP == 1:
            mbarrier.wait(lead.index(0), (t - start) & 1)
        for k in gl.static_range(KT):
            mbarrier.wait(x_full.index(k), loads & 1, pred=fresh)
            mbarrier.wait(w_full.index(i % S), (i // S) & 1)
            w = ws.index(i % S).permute((1, 0))
            acc = warpgroup_mma(xs.index(2 * k + GROUP), w, acc, use_acc=k > 0, is_async=True)
            if k > 0:
                acc = warpgroup_mma_wait(1, deps=(acc,))
                mbarrier.arrive(w_empty.index((i - 1) % S))
                mbarrier.arrive(x_empty.index(k - 1), pred=last)
                if GROUP == 0 and k == LEAD:
                    mbarrier.arrive(lead.index(0))
            i += 1
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(w_empty.index((i - 1) % S))
        mbarrier.arrive(x_empty.index(KT - 1), pred=last)
        loads += fresh.to(gl.int32)
        _finish(h, gu, hs.index(GROUP), acc, (t // NT) * 128 + 64 * GROUP, t % NT, KEEP)
    tma.store_wait(0)


@gluon.jit
def _gate_up(x, w, h, gu, rows, NT: gl.constexpr, KT: gl.constexpr, BK: gl.constexpr, S: gl.constexpr,
             KEEP: gl.constexpr):  # fmt: skip
    """h (rows, 128 NT) = swiglu(x @ w.T), w (256 NT, KT BK) in pairs of 64; KEEP: the products too, gu, paired."""
    xs = gl.allocate_shared_memory(x.dtype, [2 * KT, 64, BK], x.layout)
    ws = gl.allocate_shared_memory(w.dtype, [S, 256, BK], w.layout)
    hs = gl.allocate_shared_memory(h.dtype, [2, 64, 128], h.layout)
    bars = (barriers(KT, 1), barriers(KT, 2), barriers(S, 1), barriers(S, 2), barriers(1, 1))
    start, stop = share(gl.cdiv(rows, 128) * NT)
    gl.warp_specialize([
        (_compute, (h, gu, xs, ws, hs, bars, start, stop, 0, NT, KT, S, KEEP)),
        (_compute, (h, gu, xs, ws, hs, bars, start, stop, 1, NT, KT, S, KEEP)),
        (_load, (x, w, xs, ws, bars, start, stop, NT, KT, BK, S)),
    ], [4, 1], [CONSUMER, PRODUCER])  # fmt: skip


def gate_up(x: Tensor, w: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    """(hidden (rows, N), products (rows, 2N) in paired order, or hidden again unless `keep`)."""
    rows, width = x.shape
    h = x.new_empty(rows, len(w) // 2)
    gu = x.new_empty(rows, len(w)) if keep else h
    _gate_up[(programs(x.device),)](
        descriptor(x, [64, DEPTH]), descriptor(w, [256, DEPTH]), descriptor(h, [64, 128]), descriptor(gu, [64, 128]),
        rows, len(w) // 256, width // DEPTH, DEPTH, STAGES, keep, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
    return h, gu
