# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Attention over long sequences: one warp loads, three groups of warps take 64 queries of a head each.

Keys and values stream by in tiles that all groups read. Queries and keys are turned already (trm/kernels/specialized/
qkv.py). The next tile's scores are multiplied together with the last one's values, so that a group waits once a tile.
"""

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from trm.kernels.specialized.long_tiles import AT_START, FEW, GROUPS, HEAD, LOG2E, MANY, exp2, put, tiles
from trm.kernels.specialized.tiles import barriers, descriptor, programs, share

KEYS, STAGES = 128, 3
"""Keys of a tile, tiles in flight."""


@gluon.jit
def _load(q, kv, qs, ks, vs, bars, start, stop, H: gl.constexpr, BLOCKS: gl.constexpr, TILES: gl.constexpr,
          BK: gl.constexpr, S: gl.constexpr):  # fmt: skip
    q_full, q_empty, kv_full, kv_empty = bars
    i = 0
    for t in range(start, stop):
        b, column = t // BLOCKS // H, (t // BLOCKS % H) * HEAD
        n = t - start
        full = q_full.index(n % 2)
        mbarrier.wait(q_empty.index(n % 2), ((n // 2) & 1) ^ 1)
        mbarrier.expect(full, GROUPS * 64 * HEAD * 2)
        for g in gl.static_range(GROUPS):
            row = (t % BLOCKS) * (64 * GROUPS) + 64 * g
            tma.async_copy_global_to_shared(q, [b, row, column], full, qs.index(n % 2 * GROUPS + g))
        for j in range(TILES):
            slot = i % S
            mbarrier.wait(kv_empty.index(slot), ((i // S) & 1) ^ 1)
            mbarrier.expect(kv_full.index(slot), 2 * BK * HEAD * 2)
            tma.async_copy_global_to_shared(kv, [b, j * BK, H * HEAD + column], kv_full.index(slot), ks.index(slot))
            tma.async_copy_global_to_shared(kv, [b, j * BK, 2 * H * HEAD + column], kv_full.index(slot), vs.index(slot))
            i += 1


@gluon.jit
def _softmax(s, o, top, total, c, mma: gl.constexpr):
    """Weights of one tile's scores, o and total brought down to the new maximum of scores (times c), and that.

    The weights are to be divided by the total of all tiles.
    """
    row: gl.constexpr = gl.SliceLayout(1, s.type.layout)
    top = gl.convert_layout(top, row, assert_trivial=True)
    total = gl.convert_layout(total, row, assert_trivial=True)
    new = gl.maximum(top, gl.max(s, axis=1) * c)
    p = exp2(s * c - new[:, None])
    down = exp2(top - new)
    total = total * down + gl.sum(p, axis=1)
    o = o * gl.convert_layout(down, gl.SliceLayout(1, mma), assert_trivial=True)[:, None]
    return gl.convert_layout(p.to(gl.bfloat16), gl.DotOperandLayout(0, mma, 2)), o, new, total


@gluon.jit
def _both(p, v, o, q, k, s, kv_full, i, S: gl.constexpr):
    """o + p @ v and the scores q @ k.T, which take the place of s, once tile i is there."""
    mbarrier.wait(kv_full.index(i % S), (i // S) & 1)
    o = warpgroup_mma(p, v, o, is_async=True)
    s = warpgroup_mma(q, k.permute((1, 0)), s, use_acc=False, is_async=True)
    o, s, p = warpgroup_mma_wait(0, deps=(o, s, p))
    return o, s


@gluon.jit
def _compute(at, GROUP: gl.constexpr, L: gl.constexpr, PADDED: gl.constexpr, H: gl.constexpr, BLOCKS: gl.constexpr,
             TILES: gl.constexpr, REST: gl.constexpr, BK: gl.constexpr, S: gl.constexpr):  # fmt: skip
    out, sums_ptr, qs, ks, vs, os, bars, start, stop, c = at
    q_full, q_empty, kv_full, kv_empty = bars
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BK, 16])
    rest: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    s, s_rest = gl.zeros((64, BK), gl.float32, wide), gl.zeros((64, REST), gl.float32, rest)
    i = 0
    for t in range(start, stop):
        n = t - start
        head, first = t // BLOCKS, (t % BLOCKS) * (64 * GROUPS) + 64 * GROUP
        q = qs.index(n % 2 * GROUPS + GROUP).reshape((64, HEAD))
        o = gl.zeros((64, HEAD), gl.float32, mma)
        top = gl.full((64,), float("-inf"), gl.float32, gl.SliceLayout(1, wide))
        total = gl.zeros((64,), gl.float32, gl.SliceLayout(1, wide))
        mbarrier.wait(q_full.index(n % 2), (n // 2) & 1)
        mbarrier.wait(kv_full.index(i % S), (i // S) & 1)
        k = ks.index(i % S).reshape((BK, HEAD))
        s = warpgroup_mma(q, k.permute((1, 0)), s, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        for _ in range(TILES - 2):
            p, o, top, total = _softmax(s, o, top, total, c, mma)
            v, k = vs.index(i % S).reshape((BK, HEAD)), ks.index((i + 1) % S).reshape((BK, HEAD))
            o, s = _both(p, v, o, q, k, s, kv_full, i + 1, S)
            mbarrier.arrive(kv_empty.index(i % S))
            i += 1
        p, o, top, total = _softmax(s, o, top, total, c, mma)
        v, k = vs.index(i % S).reshape((BK, HEAD)), ks.index((i + 1) % S).reshape((BK, HEAD)).slice(0, REST)
        o, s_rest = _both(p, v, o, q, k, s_rest, kv_full, i + 1, S)
        mbarrier.arrive(kv_empty.index(i % S))
        mbarrier.arrive(q_empty.index(n % 2))
        i += 1
        column = (TILES - 1) * BK + gl.arange(0, REST, gl.SliceLayout(0, rest))
        masked = gl.where((column < L)[None, :], s_rest, float("-inf"))
        p, o, last, all_ = _softmax(masked, o, top, total, c, mma)
        o = warpgroup_mma(p, vs.index(i % S).reshape((BK, HEAD)).slice(0, REST), o, is_async=True)
        o, p = warpgroup_mma_wait(0, deps=(o, p))
        mbarrier.arrive(kv_empty.index(i % S))
        i += 1
        row = first + gl.arange(0, 64, gl.SliceLayout(1, rest))
        sums = gl.where(row < L, last + gl.log2(all_), float("inf"))
        gl.store(sums_ptr + head * PADDED + row, sums, mask=row < PADDED)
        share_of = 1.0 / gl.convert_layout(all_, gl.SliceLayout(1, mma), assert_trivial=True)
        put(out, os.index(GROUP), [head // H, first, (head % H) * HEAD], (o * share_of[:, None]).to(gl.bfloat16))
    tma.store_wait(0)


@gluon.jit
def _long_forward(q, kv, out, sums_ptr, units, c, L: gl.constexpr, PADDED: gl.constexpr, H: gl.constexpr,
                  BLOCKS: gl.constexpr, TILES: gl.constexpr, REST: gl.constexpr, BK: gl.constexpr,
                  S: gl.constexpr):  # fmt: skip
    """out (B, L, 64 H), and the softmax's logarithms to base 2 (B H, PADDED), from turned qkv (B, L, 3 * 64 H)."""
    qs = gl.allocate_shared_memory(q.dtype, [2 * GROUPS, 1, 64, HEAD], q.layout)
    ks = gl.allocate_shared_memory(q.dtype, [S, 1, BK, HEAD], kv.layout)
    vs = gl.allocate_shared_memory(q.dtype, [S, 1, BK, HEAD], kv.layout)
    os = gl.allocate_shared_memory(q.dtype, [GROUPS, 1, 64, HEAD], out.layout)
    bars = (barriers(2, 1), barriers(2, GROUPS), barriers(S, 1), barriers(S, GROUPS))
    start, stop = share(units)
    at = (out, sums_ptr, qs, ks, vs, os, bars, start, stop, c)
    gl.warp_specialize([
        (_compute, (at, 0, L, PADDED, H, BLOCKS, TILES, REST, BK, S)),
        (_compute, (at, 1, L, PADDED, H, BLOCKS, TILES, REST, BK, S)),
        (_compute, (at, 2, L, PADDED, H, BLOCKS, TILES, REST, BK, S)),
        (_load, (q, kv, qs, ks, vs, bars, start, stop, H, BLOCKS, TILES, BK, S)),
    ], [4, 4, 1], [MANY, MANY, FEW])  # fmt: skip


def forward(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """qkv (B, L, 3 D), q and k turned, heads of 64 -> mixed values (B, L, D) and the softmax's logarithms to base 2.

    Those are float32 (B heads, L rounded up to 64), infinite from L on.
    """
    batch, length, triple = qkv.shape
    out = qkv.new_empty(batch, length, triple // 3)
    padded, blocks = -(-length // 64) * 64, -(-length // (64 * GROUPS.value))
    sums = qkv.new_empty(batch * heads, padded, dtype=torch.float32)
    one = [1, 64, HEAD.value]
    _long_forward[(programs(qkv.device),)](
        descriptor(qkv, one), descriptor(qkv, [1, KEYS, HEAD.value]), descriptor(out, one), sums,
        batch * heads * blocks, HEAD.value**-0.5 * LOG2E, length, padded, heads, blocks, *tiles(length, KEYS), KEYS,
        STAGES, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
    return out, sums
