# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Token mixer input gradient: one warp loads, two groups of warps compute 64 channels of a sequence each.

Gate and up are computed again. A group's products wait for its own activation; the other group multiplies then.
"""

from __future__ import annotations

import torch
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
from trm.kernels.specialized.tiles import (
    AT_START,
    CONSUMER,
    PRODUCER,
    barriers,
    descriptor,
    join_pairs,
    programs,
    share,
    split_pairs,
    store,
    swiglu_grad,
)
from trm.kernels.specialized.weight_stream import load_weights

STAGES, UNROLL = 4, gl.constexpr(4)
"""Chunks of the weights in flight; chunks a group computes before it waits for its last product."""


@gluon.jit
def _load(x, y, dy, wgu, wd, xs, us, ds, x_full, x_empty, bars, start, stop, PER: gl.constexpr, CHUNKS: gl.constexpr,
          C: gl.constexpr, S: gl.constexpr):  # fmt: skip
    i = 0
    for t in range(start, stop):
        for group in gl.static_range(2):
            full = x_full.index(group)
            at = [t // PER, 0, (t % PER) * 128 + 64 * group]
            mbarrier.wait(x_empty.index(group), ((t - start) & 1) ^ 1)
            mbarrier.expect(full, 3 * 128 * 64 * 2)
            tma.async_copy_global_to_shared(y, at, full, xs.index(3 * group + 1))
            tma.async_copy_global_to_shared(dy, at, full, xs.index(3 * group + 2))
            tma.async_copy_global_to_shared(x, at, full, xs.index(3 * group))
        i = load_weights(wgu, wd, us, ds, bars, i, CHUNKS, C, S)


@gluon.jit
def _store(out, tile, at, value):
    """(channels, positions) through shared memory to out (B, L, D)."""
    store(out, tile, tile.reshape((128, 64)).permute((1, 0)), at, value, 0)


@gluon.jit
def _norm_grad(y, dy, rstd, L: gl.constexpr):
    """Gradient in front of the norm, from tiles (128, 64) of y and its gradient: (64, 128)."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    y32 = y.reshape((128, 64)).permute((1, 0)).load(layout).to(gl.float32)
    dy32 = dy.reshape((128, 64)).permute((1, 0)).load(layout).to(gl.float32)
    return (rstd[:, None] * (dy32 - y32 * (gl.sum(y32 * dy32, axis=1) / L)[:, None])).to(y.dtype)


@gluon.jit
def _chunks(acc, xt, drt, us, ds, bars, i, C: gl.constexpr, S: gl.constexpr):
    """acc (64, 128) plus the gradient of UNROLL chunks."""
    u_full, u_empty, d_full, d_empty = bars
    left: gl.constexpr = gl.DotOperandLayout(0, acc.type.layout, 2)
    down: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C, 16])
    zero_u = gl.zeros((64, 2 * C), gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 2 * C, 16]))
    zero_d = gl.zeros((64, C), gl.float32, down)
    for c in gl.static_range(UNROLL):
        slot = (i + c) % S
        phase = ((i + c) // S) & 1
        mbarrier.wait(u_full.index(slot), phase)
        s = warpgroup_mma(xt, us.index(slot).permute((1, 0)), zero_u, use_acc=False, is_async=True)
        mbarrier.wait(d_full.index(slot), phase)
        dh = warpgroup_mma(drt, ds.index(slot).permute((1, 0)), zero_d, use_acc=False, is_async=True)
        s, dh, acc = warpgroup_mma_wait(0, deps=(s, dh, acc))
        mbarrier.arrive(d_empty.index(slot))
        if c > 0:
            mbarrier.arrive(u_empty.index((i + c - 1) % S))
        gate, up = split_pairs(s, 64, C, C)
        gate = gl.convert_layout(gate, down, assert_trivial=True)
        up = gl.convert_layout(up, down, assert_trivial=True)
        dgate, dup, _ = swiglu_grad(gate, up, dh)
        dgu = gl.convert_layout(join_pairs(dgate.to(us.dtype), dup.to(us.dtype), 64, C, C), left)
        acc = warpgroup_mma(dgu, us.index(slot), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(u_empty.index((i + UNROLL - 1) % S))
    return acc


@gluon.jit
def _compute(dx, dr_out, rstd_ptr, xs, us, ds, os, x_full, x_empty, bars, start, stop, GROUP: gl.constexpr,
             PER: gl.constexpr, CHUNKS: gl.constexpr, C: gl.constexpr, S: gl.constexpr, L: gl.constexpr,
             D: gl.constexpr):  # fmt: skip
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    out = os.index(GROUP)
    i = 0
    for t in range(start, stop):
        col = (t % PER) * 128 + 64 * GROUP
        rstd = gl.load(rstd_ptr + (t // PER) * D + col + gl.arange(0, 64, gl.SliceLayout(1, mma)))
        mbarrier.wait(x_full.index(GROUP), (t - start) & 1)
        dr = _norm_grad(xs.index(3 * GROUP + 1), xs.index(3 * GROUP + 2), rstd, L)
        xt = xs.index(3 * GROUP).reshape((128, 64)).permute((1, 0)).load(left)
        fence_async_shared()
        mbarrier.arrive(x_empty.index(GROUP))
        _store(dr_out, out, [t // PER, 0, col], dr)
        acc = dr.to(gl.float32)
        drt = gl.convert_layout(dr, left)
        for _ in range(0, CHUNKS, UNROLL):
            acc = _chunks(acc, xt, drt, us, ds, bars, i, C, S)
            i += UNROLL
        _store(dx, out, [t // PER, 0, col], acc.to(dx.dtype))
    tma.store_wait(0)


@gluon.jit
def _mixer_input_grad(x, y, dy, rstd_ptr, wgu, wd, dx, dr, B, L: gl.constexpr, D: gl.constexpr, N: gl.constexpr,
                      C: gl.constexpr, S: gl.constexpr):  # fmt: skip
    """dx and dr from x, y, dy, all (B, L, D) in blocks (1, 128, 64); weights as in the forward pass."""
    xs = gl.allocate_shared_memory(x.dtype, [6, 1, 128, 64], x.layout)
    os = gl.allocate_shared_memory(x.dtype, [2, 1, 128, 64], x.layout)
    us = gl.allocate_shared_memory(x.dtype, [S, 2 * C, 128], wgu.layout)
    ds = gl.allocate_shared_memory(x.dtype, [S, C, 128], wd.layout)
    x_full, x_empty = barriers(2, 1), barriers(2, 1)
    bars = (barriers(S, 1), barriers(S, 2), barriers(S, 1), barriers(S, 2))
    PER: gl.constexpr = D // 128
    start, stop = share(B * PER)
    gl.warp_specialize([
        (_compute, (dx, dr, rstd_ptr, xs, us, ds, os, x_full, x_empty, bars, start, stop, 0, PER, N // C, C, S, L, D)),
        (_compute, (dx, dr, rstd_ptr, xs, us, ds, os, x_full, x_empty, bars, start, stop, 1, PER, N // C, C, S, L, D)),
        (_load, (x, y, dy, wgu, wd, xs, us, ds, x_full, x_empty, bars, start, stop, PER, N // C, C, S)),
    ], [4, 1], [CONSUMER, PRODUCER])  # fmt: skip


def input_grad(x: Tensor, y: Tensor, rstd: Tensor, dy: Tensor, wgu: Tensor, wd: Tensor, dx: Tensor) -> Tensor:
    """Write dx (B, L, D), the input's gradient; return dr (B, L, D), the gradient of the norm's input."""
    batch, length, width = x.shape
    dr = torch.empty_like(x)
    tx, ty, tdy, tdx, tdr = (descriptor(t, [1, 128, 64]) for t in (x, y, dy, dx, dr))
    _mixer_input_grad[(programs(x.device),)](
        tx, ty, tdy, rstd, descriptor(wgu, [2 * CHUNK, 128]), descriptor(wd, [CHUNK, 128]), tdx, tdr, batch, length,
        width, len(wd), CHUNK, STAGES, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
    return dr
