# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Token mixer weight gradients in one launch: one group of warps makes the inner gradients, another sums the products.

Sums of gate, up and down at once fill a group's registers; the group that makes the factors is another one, and they
pass through shared memory. Nothing is computed twice.
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

from trm.kernels.layout import CHUNK
from trm.kernels.specialized.tiles import AT_START, CONSUMER, PRODUCER, descriptor, tanh, unset

STAGES, FACTORS, UNROLL = 4, 2, gl.constexpr(4)
"""Tiles of x and dr in flight, buffers of inner gradients, tiles the summing group takes before it waits for all."""


@gluon.jit
def _load(x, dr, xs, full, empty, first, last, PER: gl.constexpr, S: gl.constexpr):
    for j in range(first * PER, last * PER):
        i = j - first * PER
        slot = i % S
        mbarrier.wait(empty.index(slot), ((i // S) & 1) ^ 1)
        mbarrier.expect(full.index(slot), 2 * 128 * 64 * 2)
        at = [j // PER, 0, (j % PER) * 64]
        tma.async_copy_global_to_shared(x, at, full.index(slot), xs.index(2 * slot))
        tma.async_copy_global_to_shared(dr, at, full.index(slot), xs.index(2 * slot + 1))


@gluon.jit
def _weights(pointer, rows, layout: gl.constexpr):
    """Columns 0 to 63, 64 to 95 and 96 to 111 of 64 rows, in registers."""
    a = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    b = 64 + gl.arange(0, 32, gl.SliceLayout(0, layout))[None, :]
    c = 96 + gl.arange(0, 16, gl.SliceLayout(0, layout))[None, :]
    return gl.load(pointer + rows + a), gl.load(pointer + rows + b), gl.load(pointer + rows + c)


@gluon.jit
def _product(w, tile, zero):
    """w (64, 112) @ the first 112 rows of the tile (128, 64): three groups of asynchronous products."""
    a, b, c = w
    s = warpgroup_mma(a, tile.slice(0, 64), zero, use_acc=False, is_async=True)
    s = warpgroup_mma(b, tile.slice(64, 32), s, is_async=True)
    return warpgroup_mma(c, tile.slice(96, 16), s, is_async=True)


@gluon.jit
def _make(wgu_ptr, wd_ptr, unit, xs, ps, bars, count, S: gl.constexpr, Q: gl.constexpr, C: gl.constexpr):
    """The inner gradients of 64 units: d gate, d up and hidden of each tile, into ps."""
    full, empty, p_full, p_empty = bars
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    u = unit + gl.arange(0, 64, gl.SliceLayout(1, left))
    packed = ((u // C) * (2 * C) + u % C)[:, None] * 128
    down = u[:, None] * 128
    wg, wu = _weights(wgu_ptr, packed, left), _weights(wgu_ptr + C * 128, packed, left)
    wd = _weights(wd_ptr, down, left)
    zero = gl.zeros((64, 64), gl.float32, mma)
    for i in range(count):
        slot = i % S
        mbarrier.wait(full.index(slot), (i // S) & 1)
        x, dr = xs.index(2 * slot).reshape((128, 64)), xs.index(2 * slot + 1).reshape((128, 64))
        gate, up, dh = _product(wg, x, zero), _product(wu, x, zero), _product(wd, dr, zero)
        gate, up, dh = warpgroup_mma_wait(0, deps=(gate, up, dh))
        mbarrier.arrive(empty.index(slot))
        s = 0.5 * tanh(0.5 * gate) + 0.5
        silu = gate * s
        q = i % Q
        mbarrier.wait(p_empty.index(q), ((i // Q) & 1) ^ 1)
        ps.index(3 * q).store((dh * up * (s + silu - silu * s)).to(ps.dtype))
        ps.index(3 * q + 1).store((dh * silu).to(ps.dtype))
        ps.index(3 * q + 2).store((silu * up).to(ps.dtype))
        fence_async_shared()
        mbarrier.arrive(p_full.index(q))


@gluon.jit
def _sum(dwgu_ptr, dwd_ptr, part, unit, xs, ps, bars, count, ADD: gl.constexpr, N: gl.constexpr, S: gl.constexpr,
         Q: gl.constexpr, C: gl.constexpr):  # fmt: skip
    """The three sums of 64 units, from zero or (ADD) from the buffers' values."""
    full, empty, p_full, p_empty = bars
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    u = unit + gl.arange(0, 64, gl.SliceLayout(1, mma))
    k = gl.arange(0, 128, gl.SliceLayout(0, mma))[None, :]
    at_g = part * (2 * N * 128) + ((u // C) * (2 * C) + u % C)[:, None] * 128 + k
    at_d = part * (N * 128) + u[:, None] * 128 + k
    a = gl.zeros((64, 128), gl.float32, mma)
    b, c = a, a
    if ADD:
        a, b, c = gl.load(dwgu_ptr + at_g), gl.load(dwgu_ptr + C * 128 + at_g), gl.load(dwd_ptr + at_d)
    for i0 in range(0, count, UNROLL):
        for i1 in gl.static_range(UNROLL):
            i = i0 + i1
            slot, q = i % S, i % Q
            mbarrier.wait(full.index(slot), (i // S) & 1)
            mbarrier.wait(p_full.index(q), (i // Q) & 1)
            xt = xs.index(2 * slot).reshape((128, 64)).permute((1, 0))
            drt = xs.index(2 * slot + 1).reshape((128, 64)).permute((1, 0))
            a = warpgroup_mma(ps.index(3 * q), xt, a, is_async=True)
            b = warpgroup_mma(ps.index(3 * q + 1), xt, b, is_async=True)
            c = warpgroup_mma(ps.index(3 * q + 2), drt, c, is_async=True)
            if i1 > 0:
                a, b, c = warpgroup_mma_wait(3, deps=(a, b, c))
                mbarrier.arrive(p_empty.index((i - 1) % Q))
                mbarrier.arrive(empty.index((i - 1) % S))
        a, b, c = warpgroup_mma_wait(0, deps=(a, b, c))
        mbarrier.arrive(p_empty.index((i0 + UNROLL - 1) % Q))
        mbarrier.arrive(empty.index((i0 + UNROLL - 1) % S))
    gl.store(dwgu_ptr + at_g, a)
    gl.store(dwgu_ptr + C * 128 + at_g, b)
    gl.store(dwd_ptr + at_d, c)


@gluon.jit
def _mixer_weight_grad(x, dr, wgu_ptr, wd_ptr, dwgu_ptr, dwd_ptr, B, ADD: gl.constexpr, SPLITS: gl.constexpr,
                       D: gl.constexpr, N: gl.constexpr, S: gl.constexpr, Q: gl.constexpr,
                       C: gl.constexpr):  # fmt: skip
    """Gradients of 64 inner units over one of SPLITS parts of the batch, into sums (SPLITS, 2N and N, 128)."""
    xs = gl.allocate_shared_memory(x.dtype, [2 * S, 1, 128, 64], x.layout)
    tile: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], x.dtype)
    ps = gl.allocate_shared_memory(x.dtype, [3 * Q, 64, 64], tile)
    full, empty, p_full, p_empty = unset(S), unset(S), unset(Q), unset(Q)
    for s in gl.static_range(S):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=2)
    for q in gl.static_range(Q):
        mbarrier.init(p_full.index(q), count=1)
        mbarrier.init(p_empty.index(q), count=1)
    bars = (full, empty, p_full, p_empty)
    part, unit = gl.program_id(0) // (N // 64), (gl.program_id(0) % (N // 64)) * 64
    first, last = part * B // SPLITS, (part + 1) * B // SPLITS
    count = (last - first) * (D // 64)
    gl.warp_specialize([
        (_make, (wgu_ptr, wd_ptr, unit, xs, ps, bars, count, S, Q, C)),
        (_sum, (dwgu_ptr, dwd_ptr, part, unit, xs, ps, bars, count, ADD, N, S, Q, C)),
        (_load, (x, dr, xs, bars[0], bars[1], first, last, D // 64, S)),
    ], [4, 1], [CONSUMER, PRODUCER])  # fmt: skip


def weight_grad(x: Tensor, dr: Tensor, wgu: Tensor, wd: Tensor, dwgu: Tensor, dwd: Tensor, add: bool) -> None:
    """Write (or `add`) float32 partial sums dwgu (parts, 2N, 128), dwd (parts, N, 128); no atomics, a fixed order."""
    batch, _, width = x.shape
    _mixer_weight_grad[(len(dwgu) * (len(wd) // 64),)](
        descriptor(x, [1, 128, 64]), descriptor(dr, [1, 128, 64]), wgu, wd, dwgu, dwd, batch, add, len(dwgu), width,
        len(wd), STAGES, FACTORS, CHUNK, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
