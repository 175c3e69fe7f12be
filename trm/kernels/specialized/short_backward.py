# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Gradient of the attention of one short sequence and head in one program for Hopper.

Weights are computed again from the sums that the forward pass kept, for keys against queries, so that they and their
gradients are left factors straight from registers; only the queries' gradient reads them the other way round, from
shared memory. A column's sum starts from the value that is subtracted from its product. A gradient replaces its tile,
is rounded as in the plain twin, and turned back there. Reads without bulk copies are issued first, so that nothing
else in a program waits for them.
"""

from __future__ import annotations

import math

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

from trm.kernels.layout import PAD
from trm.kernels.specialized.short_rotary import angles, turn_back, widened
from trm.kernels.specialized.tiles import barriers, descriptor, exp2

REGISTERS = 128
"""A thread's, so that two programs fit."""
SCALE = gl.constexpr(0.125)
"""1 / sqrt(64)."""


@gluon.jit
def _from_columns(values):
    """(128, 64), each row the values."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, 64, 16])
    return gl.zeros((128, 64), gl.float32, layout) + values.load(gl.SliceLayout(0, layout))[None, :]


@gluon.jit
def _rows(ptr, WIDTH: gl.constexpr, L: gl.constexpr):
    """(128, 64) of a matrix (L, WIDTH), a thread eight columns of a row; zero from L on."""
    by_row: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    row = gl.arange(0, 128, gl.SliceLayout(1, by_row))[:, None]
    return gl.load(ptr + row * WIDTH + gl.arange(0, 64, gl.SliceLayout(0, by_row))[None, :], mask=row < L, other=0.0)


@gluon.jit
def _gradients(q, k, v, dout, weights, logs, dots, scale, cos_ptr, sin_ptr, L: gl.constexpr):
    """Put the gradients of q, k and v, the former two still turned, in their places. The first angles come back."""
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, 64, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, wide, 2)
    zero = gl.zeros((128, 64), gl.float32, wide)
    real = gl.arange(0, 128, gl.SliceLayout(1, wide))[:, None] < L
    dv = zero
    for first in gl.static_range(0, 128, 64):
        queries, grads = q.slice(first, 64), dout.slice(first, 64)
        start = gl.where(real, _from_columns(logs.slice(first, 64)), float("-inf"))
        s = warpgroup_mma(k, queries.permute((1, 0)), start, is_async=True)
        dp = warpgroup_mma(v, grads.permute((1, 0)), _from_columns(dots.slice(first, 64)), is_async=True)
        s = warpgroup_mma_wait(1, deps=(s,))
        p = exp2(s * scale)
        factor = gl.convert_layout(p.to(q.dtype), left)
        dv = warpgroup_mma(factor, grads, dv, use_acc=first > 0, is_async=True)
        dp = warpgroup_mma_wait(1, deps=(dp,))
        weights.slice(first, 64, dim=1).store((p * dp).to(q.dtype))
        dv, factor = warpgroup_mma_wait(0, deps=(dv, factor))
    fence_async_shared()
    dk = warpgroup_mma(weights, q, zero, use_acc=False, is_async=True)
    dq = warpgroup_mma(weights.permute((1, 0)), k, zero, use_acc=False, is_async=True)
    v.store(dv.to(q.dtype))
    cos, sin = angles(cos_ptr, sin_ptr, 0, L)
    dk, dq = warpgroup_mma_wait(0, deps=(dk, dq))
    k.store((dk * SCALE).to(q.dtype))
    q.store((dq * SCALE).to(q.dtype))
    return cos, sin


@gluon.jit
def _short_backward(qkv, cos_ptr, sin_ptr, mixed_ptr, sums_ptr, dout, dqkv, scale, H: gl.constexpr,
                        L: gl.constexpr):  # fmt: skip
    """dqkv (B, L, 3 * 64 H), in blocks (1, 128, 64) as qkv and dout (B, L, 64 H) are; sums as the forward pass left."""
    t = gl.program_id(0)
    b, column = t // H, (t % H) * 64
    mixed = _rows(mixed_ptr + b.to(gl.int64) * (L * 64 * H) + column, 64 * H, L)
    log = gl.load(sums_ptr + t * 128 + gl.arange(0, 128, gl.BlockedLayout([1], [32], [8], [0])))
    tiles = gl.allocate_shared_memory(qkv.dtype, [4, 1, 128, 64], qkv.layout)
    square: gl.constexpr = gl.NVMMASharedLayout.get_default_for([128, 128], qkv.dtype)
    weights = gl.allocate_shared_memory(qkv.dtype, [128, 128], square)
    sums = gl.allocate_shared_memory(gl.float32, [2, 128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = barriers(2, 1)
    mbarrier.expect(full.index(0), 2 * 128 * 64 * 2)
    tma.async_copy_global_to_shared(dout, [b, 0, column], full.index(0), tiles.index(3))
    tma.async_copy_global_to_shared(qkv, [b, 0, 128 * H + column], full.index(0), tiles.index(2))
    mbarrier.expect(full.index(1), 2 * 128 * 64 * 2)
    tma.async_copy_global_to_shared(qkv, [b, 0, column], full.index(1), tiles.index(0))
    tma.async_copy_global_to_shared(qkv, [b, 0, 64 * H + column], full.index(1), tiles.index(1))
    q, k = tiles.index(0).reshape((128, 64)), tiles.index(1).reshape((128, 64))
    v, d = tiles.index(2).reshape((128, 64)), tiles.index(3).reshape((128, 64))
    sums.index(0).store(log)
    mbarrier.wait(full.index(0), 0)
    sums.index(1).store(-gl.sum(widened(d.load(mixed.type.layout)) * widened(mixed), axis=1))
    mbarrier.wait(full.index(1), 0)
    cos, sin = _gradients(q, k, v, d, weights, sums.index(0), sums.index(1), scale, cos_ptr, sin_ptr, L)
    fence_async_shared()
    tma.async_copy_shared_to_global(dqkv, [b, 0, 128 * H + column], tiles.index(2))
    turn_back(q, cos, sin, 0)
    turn_back(k, cos, sin, 0)
    cos, sin = angles(cos_ptr, sin_ptr, 64, L)
    turn_back(q, cos, sin, 64)
    turn_back(k, cos, sin, 64)
    fence_async_shared()
    tma.async_copy_shared_to_global(dqkv, [b, 0, column], tiles.index(0))
    tma.async_copy_shared_to_global(dqkv, [b, 0, 64 * H + column], tiles.index(1))
    tma.store_wait(0)


def backward(
    qkv: Tensor, cos: Tensor, sin: Tensor, mixed: Tensor, sums: Tensor, dout: Tensor, heads: int
) -> Tensor:  # fmt: skip
    """Gradient of qkv (B, L, 3 D), given the results of `forward` and the gradient of the mixed values (B, L, D)."""
    dqkv = torch.empty_like(qkv)
    block = [1, PAD, 64]
    _short_backward[(qkv.shape[0] * heads,)](
        descriptor(qkv, block), cos, sin, mixed, sums, descriptor(dout, block), descriptor(dqkv, block),
        math.log2(math.e) / 8.0, heads, qkv.shape[1], num_warps=8, maxnreg=REGISTERS,
    )  # fmt: skip
    return dqkv
