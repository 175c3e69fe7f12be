# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Attention of one short sequence and head in one program for Hopper.

Queries and keys are turned already (trm/kernels/specialized/qkv.py). Bulk copies bring them; four programs a
multiprocessor hide each other's waiting. The logarithms of the softmax's sums are kept for the backward pass.
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
from trm.kernels.specialized.tiles import barriers, descriptor

REGISTERS = 128
"""A thread's, so that four programs fit."""


@gluon.jit
def _softmax(s, scale, L: gl.constexpr):
    """Of s (64, 128): weights still to be divided by their sums, the sums, and minus their logarithms in s's units."""
    column = gl.arange(0, 128, gl.SliceLayout(0, s.type.layout))
    s = gl.where((column < L)[None, :], s, float("-inf"))
    top = gl.max(s, axis=1)
    p = gl.exp2(s * scale - (top * scale)[:, None])
    total = gl.sum(p, axis=1)
    return p, total, -top - gl.log2(total) / scale


@gluon.jit
def _short_forward(qkv, out, sums_ptr, scale, H: gl.constexpr, L: gl.constexpr):
    """out (B, L, 64 H) from qkv (B, L, 3 * 64 H), both in blocks (1, 128, 64); sums (B H, 128). scale: times log2 e."""
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, wide, 2)
    zero, zero_o = gl.zeros((64, 128), gl.float32, mma), gl.zeros((64, 64), gl.float32, wide)
    tiles = gl.allocate_shared_memory(qkv.dtype, [3, 1, 128, 64], qkv.layout)
    full = barriers(2, 1)
    t = gl.program_id(0)
    b, column = t // H, (t % H) * 64
    mbarrier.expect(full.index(0), 2 * 128 * 64 * 2)
    tma.async_copy_global_to_shared(qkv, [b, 0, column], full.index(0), tiles.index(0))
    tma.async_copy_global_to_shared(qkv, [b, 0, 64 * H + column], full.index(0), tiles.index(1))
    mbarrier.expect(full.index(1), 128 * 64 * 2)
    tma.async_copy_global_to_shared(qkv, [b, 0, 128 * H + column], full.index(1), tiles.index(2))
    q, k = tiles.index(0).reshape((128, 64)), tiles.index(1).reshape((128, 64))
    v = tiles.index(2).reshape((128, 64))
    mbarrier.wait(full.index(0), 0)
    for first in gl.static_range(0, 128, 64):
        rows = q.slice(first, 64)
        s = warpgroup_mma(rows, k.permute((1, 0)), zero, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        p, total, log = _softmax(s, scale, L)
        gl.store(sums_ptr + t * 128 + first + gl.arange(0, 64, gl.SliceLayout(1, mma)), log)
        if first == 0:
            mbarrier.wait(full.index(1), 0)
        o = warpgroup_mma(gl.convert_layout(p.to(q.dtype), left), v, zero_o, use_acc=False, is_async=True)
        o = warpgroup_mma_wait(0, deps=(o,))
        rows.store((o / gl.convert_layout(total, gl.SliceLayout(1, wide))[:, None]).to(q.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [b, 0, column], tiles.index(0))
    tma.store_wait(0)


def forward(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """qkv (B, L, 3 D), q and k turned, heads of 64 -> mixed values (B, L, D) and the softmax's sums.

    Those are minus their logarithms in units of q @ k, float32 (B heads, PAD).
    """
    batch, length, triple = qkv.shape
    out = qkv.new_empty(batch, length, triple // 3)
    sums = qkv.new_empty(batch * heads, PAD, dtype=torch.float32)
    _short_forward[(batch * heads,)](
        descriptor(qkv, [1, PAD, 64]), descriptor(out, [1, PAD, 64]), sums, math.log2(math.e) / 8.0, heads,
        length, num_warps=4, maxnreg=REGISTERS,
    )  # fmt: skip
    return out, sums
