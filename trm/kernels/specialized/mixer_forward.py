# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Token mixer forward: one warp loads, two groups of warps compute 64 channels of a sequence each.

Both groups read the same chunks of the weights, which halves their way through the cache. A group issues the next
chunk's first product before this chunk's activation, and finds its down product done then.
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
    descriptor,
    programs,
    split_pairs,
    swiglu,
    unset,
)
from trm.kernels.specialized.weight_stream import load_weights

STAGES = 6
"""Chunks of the weights in flight."""


@gluon.jit
def _load(x, wgu, wd, xs, us, ds, x_full, x_empty, bars, start, stop, PER: gl.constexpr, CHUNKS: gl.constexpr,
          C: gl.constexpr, S: gl.constexpr):  # fmt: skip
    i = 0
    for t in range(start, stop):
        b, col = t // PER, (t % PER) * 128
        for group in gl.static_range(2):
            mbarrier.wait(x_empty.index(group), ((t - start) & 1) ^ 1)
            mbarrier.expect(x_full.index(group), 128 * 64 * 2)
            tma.async_copy_global_to_shared(x, [b, 0, col + 64 * group], x_full.index(group), xs.index(group))
        i = load_weights(wgu, wd, us, ds, bars, i, CHUNKS, C, S)


@gluon.jit
def _chunks(acc, xt, us, ds, bars, i, CHUNKS: gl.constexpr, C: gl.constexpr, S: gl.constexpr):
    """acc (64, 128) plus the down products of all chunks."""
    u_full, u_empty, d_full, d_empty = bars
    left: gl.constexpr = gl.DotOperandLayout(0, acc.type.layout, 2)
    zero = gl.zeros((64, 2 * C), gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 2 * C, 16]))
    mbarrier.wait(u_full.index(i % S), (i // S) & 1)
    s = warpgroup_mma(xt, us.index(i % S).permute((1, 0)), zero, use_acc=False, is_async=True)
    for c in gl.static_range(CHUNKS):
        slot = (i + c) % S
        if c + 1 < CHUNKS:
            mbarrier.wait(u_full.index((i + c + 1) % S), ((i + c + 1) // S) & 1)
            u = us.index((i + c + 1) % S).permute((1, 0))
            following = warpgroup_mma(xt, u, zero, use_acc=False, is_async=True)
        # In flight, oldest first: s, the last chunk's down product, following. Only the last may stay so.
        s = warpgroup_mma_wait(1 if c + 1 < CHUNKS else 0, deps=(s,))
        mbarrier.arrive(u_empty.index(slot))
        if c > 0:
            mbarrier.arrive(d_empty.index((i + c - 1) % S))
        gate, up = split_pairs(s, 64, C, C)
        hidden = gl.convert_layout(swiglu(gate, up).to(ds.dtype), left)
        mbarrier.wait(d_full.index(slot), ((i + c) // S) & 1)
        acc = warpgroup_mma(hidden, ds.index(slot), acc, is_async=True)
        if c + 1 < CHUNKS:
            s = following
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(d_empty.index((i + CHUNKS - 1) % S))
    return acc


@gluon.jit
def _compute(y, rstd_ptr, eps, xs, ys, us, ds, x_full, x_empty, bars, start, stop, GROUP: gl.constexpr,
             PER: gl.constexpr, CHUNKS: gl.constexpr, C: gl.constexpr, S: gl.constexpr, L: gl.constexpr,
             D: gl.constexpr):  # fmt: skip
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    x, out = xs.index(GROUP).reshape((128, 64)).permute((1, 0)), ys.index(GROUP)
    i = 0
    for t in range(start, stop):
        mbarrier.wait(x_full.index(GROUP), (t - start) & 1)
        xt = x.load(left)
        acc = x.load(mma).to(gl.float32)
        fence_async_shared()
        mbarrier.arrive(x_empty.index(GROUP))
        acc = _chunks(acc, xt, us, ds, bars, i, CHUNKS, C, S)
        i += CHUNKS
        rstd = 1.0 / gl.sqrt(gl.sum(acc * acc, axis=1) / L + eps)
        col = (t % PER) * 128 + 64 * GROUP
        at = (t // PER) * D + col + gl.arange(0, 64, gl.SliceLayout(1, mma))
        gl.store(rstd_ptr + at, rstd)
        tma.store_wait(0)
        out.reshape((128, 64)).permute((1, 0)).store((acc * rstd[:, None]).to(y.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(y, [t // PER, 0, col], out)
    tma.store_wait(0)


@gluon.jit
def _mixer_forward(x, wgu, wd, y, rstd_ptr, eps, B, L: gl.constexpr, D: gl.constexpr, N: gl.constexpr, C: gl.constexpr,
                   S: gl.constexpr, PROGRAMS: gl.constexpr):  # fmt: skip
    """x, y (B, L, D) in blocks (1, 128, 64); wgu (2N, 128), packed by C; wd (N, 128); rstd (B, D)."""
    xs = gl.allocate_shared_memory(x.dtype, [2, 1, 128, 64], x.layout)
    ys = gl.allocate_shared_memory(x.dtype, [2, 1, 128, 64], y.layout)
    us = gl.allocate_shared_memory(x.dtype, [S, 2 * C, 128], wgu.layout)
    ds = gl.allocate_shared_memory(x.dtype, [S, C, 128], wd.layout)
    x_full, x_empty = unset(2), unset(2)
    u_full, u_empty, d_full, d_empty = unset(S), unset(S), unset(S), unset(S)
    for group in gl.static_range(2):
        mbarrier.init(x_full.index(group), count=1)
        mbarrier.init(x_empty.index(group), count=1)
    for s in gl.static_range(S):
        mbarrier.init(u_full.index(s), count=1)
        mbarrier.init(u_empty.index(s), count=2)
        mbarrier.init(d_full.index(s), count=1)
        mbarrier.init(d_empty.index(s), count=2)
    bars = (u_full, u_empty, d_full, d_empty)
    PER: gl.constexpr = D // 128
    pid = gl.program_id(0)
    start, stop = pid * (B * PER) // PROGRAMS, (pid + 1) * (B * PER) // PROGRAMS
    gl.warp_specialize([
        (_compute, (y, rstd_ptr, eps, xs, ys, us, ds, x_full, x_empty, bars, start, stop, 0, PER, N // C, C, S, L, D)),
        (_compute, (y, rstd_ptr, eps, xs, ys, us, ds, x_full, x_empty, bars, start, stop, 1, PER, N // C, C, S, L, D)),
        (_load, (x, wgu, wd, xs, us, ds, x_full, x_empty, bars, start, stop, PER, N // C, C, S)),
    ], [4, 1], [CONSUMER, PRODUCER])  # fmt: skip


def forward(x: Tensor, wgu: Tensor, wd: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x (B, L, D), L up to 128 -> y (B, L, D) and 1/rms over L, float32 (B, D)."""
    batch, length, width = x.shape
    y, rstd = torch.empty_like(x), x.new_empty(batch, width, dtype=torch.float32)
    count = programs(x.device)
    _mixer_forward[(count,)](
        descriptor(x, [1, 128, 64]), descriptor(wgu, [2 * CHUNK, 128]), descriptor(wd, [CHUNK, 128]),
        descriptor(y, [1, 128, 64]), rstd, eps, batch, length, width, len(wd), CHUNK, STAGES, count, num_warps=4,
        maxnreg=AT_START,
    )  # fmt: skip
    return y, rstd
