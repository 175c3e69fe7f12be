# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Attention over long sequences: one warp loads, three groups of warps take 64 queries of a head each.

Keys and values stream by in tiles that all groups read. Queries and keys are turned already (trm/kernels/specialized/
qkv.py). The short last tile comes first: its largest score is subtracted from all of a query's scores, so that no
tile waits for a maximum and no sum is rescaled. Weights above 1 lose nothing, as floating point keeps its relative
precision; queries whose weights outgrow its range are done again at the end, with a running maximum. The next tile's
scores are multiplied together with the last one's values, so that a group waits once a tile.
"""

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from trm.kernels.specialized.long_tiles import AT_START, FEW, GROUPS, HEAD, LOG2E, MANY, put, tiles
from trm.kernels.specialized.tiles import barriers, descriptor, exp2, programs

KEYS, STAGES = 128, 3
"""Keys of a tile, tiles in flight."""
LARGEST = gl.constexpr(2.0**64)
"""Weights may add up to this: it leaves as much to products with values."""


@gluon.jit
def _load(q, kv, qs, ks, vs, bars, units, H: gl.constexpr, BLOCKS: gl.constexpr, TILES: gl.constexpr,
          BK: gl.constexpr, S: gl.constexpr):  # fmt: skip
    q_full, q_empty, kv_full, kv_empty, _ready = bars
    i = 0
    n = -1
    for t in range(gl.program_id(0), units, gl.num_programs(0)):
        b, column = t // BLOCKS // H, (t // BLOCKS % H) * HEAD
        n += 1
        full = q_full.index(n % 2)
        mbarrier.wait(q_empty.index(n % 2), ((n // 2) & 1) ^ 1)
        mbarrier.expect(full, GROUPS * 64 * HEAD * 2)
        for g in gl.static_range(GROUPS):
            row = (t % BLOCKS) * (64 * GROUPS) + 64 * g
            tma.async_copy_global_to_shared(q, [b, row, column], full, qs.index(n % 2 * GROUPS + g))
        for j in range(TILES):
            slot, row = i % S, (j + TILES - 1) % TILES * BK
            mbarrier.wait(kv_empty.index(slot), ((i // S) & 1) ^ 1)
            mbarrier.expect(kv_full.index(slot), 2 * BK * HEAD * 2)
            tma.async_copy_global_to_shared(kv, [b, row, H * HEAD + column], kv_full.index(slot), ks.index(slot))
            tma.async_copy_global_to_shared(kv, [b, row, 2 * H * HEAD + column], kv_full.index(slot), vs.index(slot))
            i += 1


@gluon.jit
def _weights(s, top, c, mma: gl.constexpr):
    """Weights of a tile's scores as a left factor, and their sums over a thread's columns, (64, 8)."""
    N: gl.constexpr = s.shape[1]
    p = exp2(s * c - gl.convert_layout(top, gl.SliceLayout(1, s.type.layout), assert_trivial=True)[:, None])
    part = gl.sum(gl.reshape(p, (64, N // 8, 8)), axis=1)
    return gl.convert_layout(p.to(gl.bfloat16), gl.DotOperandLayout(0, mma, 2)), part


@gluon.jit
def _next(q, k, p, v, o, zero, top, c, mma: gl.constexpr):
    """The next tile's weights and their sums; o + p @ v."""
    o = warpgroup_mma(p, v, o, is_async=True)
    s = warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)
    o, s, p = warpgroup_mma_wait(0, deps=(o, s, p))
    after, part = _weights(s, top, c, mma)
    return after, part, o


@gluon.jit
def _finish(out, sums_ptr, tile, o, top, total, head, first, L: gl.constexpr, PADDED: gl.constexpr,
            H: gl.constexpr):  # fmt: skip
    """Write 64 positions' mixed values and logarithms; not a number where weights outgrew their range."""
    row = first + gl.arange(0, 64, total.type.layout)
    sums = gl.where(total < LARGEST, top + gl.log2(total), float("nan"))
    gl.store(sums_ptr + head * PADDED + row, gl.where(row < L, sums, float("inf")), mask=row < PADDED)
    put(out, tile, [head // H, first, (head % H) * HEAD], (o * (1.0 / total)[:, None]).to(gl.bfloat16))


@gluon.jit
def _written(x):
    """x, once all that this thread stored in bulk is in memory: `tma.store_wait` waits until it was read only."""
    wait: gl.constexpr = "cp.async.bulk.wait_group 0; mov.b32 $0, $1;"
    return gl.inline_asm_elementwise(wait, "=r,r", [x], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _again(blocks, q, tile, ready, head, first, c, L: gl.constexpr, H: gl.constexpr):
    """Sums of weighted values, the weights' reference and their total, with a running maximum. Slow."""
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    b, column = head // H, (head % H) * HEAD
    o = gl.zeros((64, HEAD), gl.float32, mma)
    top = gl.full((64,), float("-inf"), gl.float32, gl.SliceLayout(1, mma))
    total = gl.zeros((64,), gl.float32, gl.SliceLayout(1, mma))
    tma.store_wait(0)
    for key in range(0, L, 64):
        mbarrier.expect(ready, 2 * 64 * HEAD * 2)
        tma.async_copy_global_to_shared(blocks, [b, first, column], ready, q)
        tma.async_copy_global_to_shared(blocks, [b, key, H * HEAD + column], ready, tile)
        mbarrier.wait(ready, 0)
        s = warpgroup_mma(q.reshape((64, HEAD)), tile.reshape((64, HEAD)).permute((1, 0)), o, use_acc=False)
        s = gl.where((key + gl.arange(0, 64, gl.SliceLayout(0, mma)) < L)[None, :], s, float("-inf"))
        new = gl.maximum(top, gl.max(s, axis=1) * c)
        p, down = exp2(s * c - new[:, None]), exp2(top - new)
        top, total = new, total * down + gl.sum(p, axis=1)
        mbarrier.expect(ready, 64 * HEAD * 2)
        tma.async_copy_global_to_shared(blocks, [b, key, 2 * H * HEAD + column], ready, tile)
        mbarrier.wait(ready, 1)
        p = gl.convert_layout(p.to(gl.bfloat16), gl.DotOperandLayout(0, mma, 2))
        o = warpgroup_mma(p, tile.reshape((64, HEAD)), o * down[:, None])
    return o, top, total


@gluon.jit
def _repair(at, GROUP: gl.constexpr, L: gl.constexpr, PADDED: gl.constexpr, H: gl.constexpr, BLOCKS: gl.constexpr):
    """Do those units again whose logarithms are not all numbers."""
    blocks, out, sums_ptr, qs, _ks, _vs, os, bars, units, c = at
    _q_full, _q_empty, _kv_full, _kv_empty, ready = bars
    for t in range(gl.program_id(0), units, gl.num_programs(0)):
        head, first = t // BLOCKS, (t % BLOCKS) * (64 * GROUPS) + 64 * GROUP
        mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
        row = first + gl.arange(0, 64, gl.SliceLayout(1, mma))
        sums = gl.load(sums_ptr + head * PADDED + row, mask=row < PADDED, other=0.0)
        if gl.max((sums != sums).to(gl.int32), axis=0) > 0:
            o, top, total = _again(blocks, qs.index(GROUP), os.index(GROUP), ready.index(GROUP), head, first, c, L, H)
            _finish(out, sums_ptr, os.index(GROUP), o, top, total, head, first, L, PADDED, H)


@gluon.jit
def _compute(at, GROUP: gl.constexpr, L: gl.constexpr, PADDED: gl.constexpr, H: gl.constexpr, BLOCKS: gl.constexpr,
             TILES: gl.constexpr, REST: gl.constexpr, BK: gl.constexpr, S: gl.constexpr):  # fmt: skip
    _blocks, out, sums_ptr, qs, ks, vs, os, bars, units, c = at
    q_full, q_empty, kv_full, kv_empty, _ready = bars
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BK, 16])
    rest: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    by_row: gl.constexpr = gl.SliceLayout(1, mma)
    zero, none = gl.zeros((64, BK), gl.float32, wide), gl.zeros((64, REST), gl.float32, rest)
    outgrown = gl.zeros((64,), gl.int32, by_row)
    i = 0
    n = -1
    for t in range(gl.program_id(0), units, gl.num_programs(0)):
        n += 1
        head, first = t // BLOCKS, (t % BLOCKS) * (64 * GROUPS) + 64 * GROUP
        q = qs.index(n % 2 * GROUPS + GROUP).reshape((64, HEAD))
        mbarrier.wait(q_full.index(n % 2), (n // 2) & 1)
        mbarrier.wait(kv_full.index(i % S), (i // S) & 1)
        few = ks.index(i % S).reshape((BK, HEAD)).slice(0, REST)
        s = warpgroup_mma(q, few.permute((1, 0)), none, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        real = (TILES - 1) * BK + gl.arange(0, REST, gl.SliceLayout(0, rest)) < L
        s = gl.where(real[None, :], s, float("-inf"))
        top = gl.convert_layout(gl.max(s, axis=1) * c, by_row, assert_trivial=True)
        p_rest, part_rest = _weights(s, top, c, mma)
        mbarrier.wait(kv_full.index((i + 1) % S), ((i + 1) // S) & 1)
        k, v = ks.index((i + 1) % S).reshape((BK, HEAD)), vs.index(i % S).reshape((BK, HEAD)).slice(0, REST)
        p, total, o = _next(q, k, p_rest, v, gl.zeros((64, HEAD), gl.float32, mma), zero, top, c, mma)
        total += gl.convert_layout(part_rest, total.type.layout, assert_trivial=True)
        mbarrier.arrive(kv_empty.index(i % S))
        i += 1
        for _ in range(TILES - 2):
            mbarrier.wait(kv_full.index((i + 1) % S), ((i + 1) // S) & 1)
            one, other = ks.index((i + 1) % S).reshape((BK, HEAD)), vs.index(i % S).reshape((BK, HEAD))
            p, part, o = _next(q, one, p, other, o, zero, top, c, mma)
            total += part
            mbarrier.arrive(kv_empty.index(i % S))
            i += 1
        mbarrier.arrive(q_empty.index(n % 2))
        o = warpgroup_mma(p, vs.index(i % S).reshape((BK, HEAD)), o, is_async=True)
        whole = gl.convert_layout(gl.sum(total, axis=1), by_row, assert_trivial=True)
        outgrown = gl.where(whole < LARGEST, outgrown, 1)
        o, p = warpgroup_mma_wait(0, deps=(o, p))
        mbarrier.arrive(kv_empty.index(i % S))
        i += 1
        _finish(out, sums_ptr, os.index(GROUP), o, top, whole, head, first, L, PADDED, H)
    if gl.max(outgrown, axis=0) > 0:
        _written(units)
        _repair(at, GROUP, L, PADDED, H, BLOCKS)
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
    bars = (barriers(2, 1), barriers(2, GROUPS), barriers(S, 1), barriers(S, GROUPS), barriers(GROUPS, 1))
    at = (q, out, sums_ptr, qs, ks, vs, os, bars, units, c)
    gl.warp_specialize([
        (_compute, (at, 0, L, PADDED, H, BLOCKS, TILES, REST, BK, S)),
        (_compute, (at, 1, L, PADDED, H, BLOCKS, TILES, REST, BK, S)),
        (_compute, (at, 2, L, PADDED, H, BLOCKS, TILES, REST, BK, S)),
        (_load, (q, kv, qs, ks, vs, bars, units, H, BLOCKS, TILES, BK, S)),
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
