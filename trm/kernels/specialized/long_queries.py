# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The queries' gradient of attention over long sequences: one warp loads, three groups take 64 queries of a head each.

Keys and values stream by in tiles that all groups read. Each sum is made by one group, tile after tile, so its order is
fixed. Weights are computed again from the forward pass's sums; values of an output for the keys' gradient are left for
it (trm/kernels/specialized/long_keys.py).
"""

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from trm.kernels.specialized.long_tiles import (
    AT_START,
    FEW,
    GROUPS,
    HEAD,
    LOG2E,
    MANY,
    put,
    tiles,
    turned_back,
)
from trm.kernels.specialized.tiles import barriers, descriptor, exp2, programs

KEYS, STAGES = 64, 4
"""Keys of a tile, tiles in flight."""


@gluon.jit
def _load(qkv, dout, qs, ds, ks, vs, bars, units, H: gl.constexpr, BLOCKS: gl.constexpr, TILES: gl.constexpr,
          BK: gl.constexpr, S: gl.constexpr):  # fmt: skip
    q_full, q_empty, kv_full, kv_empty = bars
    i = 0
    n = -1
    for t in range(gl.program_id(0), units, gl.num_programs(0)):
        b, column = t // BLOCKS // H, (t // BLOCKS % H) * HEAD
        n += 1
        full = q_full.index(n % 2)
        mbarrier.wait(q_empty.index(n % 2), ((n // 2) & 1) ^ 1)
        mbarrier.expect(full, GROUPS * 2 * 64 * HEAD * 2)
        for g in gl.static_range(GROUPS):
            at = [b, (t % BLOCKS) * (64 * GROUPS) + 64 * g, column]
            tma.async_copy_global_to_shared(qkv, at, full, qs.index(n % 2 * GROUPS + g))
            tma.async_copy_global_to_shared(dout, at, full, ds.index(n % 2 * GROUPS + g))
        for j in range(TILES):
            slot = i % S
            mbarrier.wait(kv_empty.index(slot), ((i // S) & 1) ^ 1)
            mbarrier.expect(kv_full.index(slot), 2 * BK * HEAD * 2)
            tma.async_copy_global_to_shared(qkv, [b, j * BK, H * HEAD + column], kv_full.index(slot), ks.index(slot))
            tma.async_copy_global_to_shared(
                qkv, [b, j * BK, 2 * H * HEAD + column], kv_full.index(slot), vs.index(slot)
            )
            i += 1


@gluon.jit
def _dots(mixed_ptr, do, head, first, L: gl.constexpr, H: gl.constexpr):
    """Each output's product with its gradient, (64,), of positions from `first` on."""
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    row = first + gl.arange(0, 64, gl.SliceLayout(1, mma))
    base = (head // H).to(gl.int64) * (L * H * HEAD) + (head % H) * HEAD
    at = base + row[:, None] * (H * HEAD) + gl.arange(0, HEAD, gl.SliceLayout(0, mma))[None, :]
    mixed = gl.load(mixed_ptr + at, mask=(row < L)[:, None], other=0.0)
    return gl.sum(mixed.to(gl.float32) * do.load(mma).to(gl.float32), axis=1)


@gluon.jit
def _products(q, do, k, v, s, dp):
    """Begin a tile's scores and the gradient of its weights, in the place of s and dp."""
    s = warpgroup_mma(q, k.permute((1, 0)), s, use_acc=False, is_async=True)
    return s, warpgroup_mma(do, v.permute((1, 0)), dp, use_acc=False, is_async=True)


@gluon.jit
def _score_grad(s, dp, sums, dots, c, mma: gl.constexpr):
    """The scores' gradient, as a left factor, where the columns of s are all real."""
    p = exp2(s * c - sums[:, None])
    return gl.convert_layout((p * (dp - dots[:, None])).to(gl.bfloat16), gl.DotOperandLayout(0, mma, 2))


@gluon.jit
def _compute(at, GROUP: gl.constexpr, L: gl.constexpr, PADDED: gl.constexpr, H: gl.constexpr, BLOCKS: gl.constexpr,
             TILES: gl.constexpr, REST: gl.constexpr, BK: gl.constexpr, S: gl.constexpr):  # fmt: skip
    mixed_ptr, dqkv, sums_ptr, dots_ptr, cos_ptr, sin_ptr, qs, ds, ks, vs, os, bars, units, c, scale = at
    q_full, q_empty, kv_full, kv_empty = bars
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BK, 16])
    rest: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    s, dp = gl.zeros((64, BK), gl.float32, wide), gl.zeros((64, BK), gl.float32, wide)
    none = gl.zeros((64, REST), gl.float32, rest)
    i = 0
    n = -1
    for t in range(gl.program_id(0), units, gl.num_programs(0)):
        n += 1
        head, first = t // BLOCKS, (t % BLOCKS) * (64 * GROUPS) + 64 * GROUP
        q = qs.index(n % 2 * GROUPS + GROUP).reshape((64, HEAD))
        do = ds.index(n % 2 * GROUPS + GROUP).reshape((64, HEAD))
        dq = gl.zeros((64, HEAD), gl.float32, mma)
        row = first + gl.arange(0, 64, gl.SliceLayout(1, wide))
        sums = gl.load(sums_ptr + head * PADDED + row, mask=row < PADDED, other=float("inf"))
        mbarrier.wait(q_full.index(n % 2), (n // 2) & 1)
        dots = gl.convert_layout(_dots(mixed_ptr, do, head, first, L, H), gl.SliceLayout(1, wide), assert_trivial=True)
        gl.store(dots_ptr + head * PADDED + row, dots, mask=row < PADDED)
        mbarrier.wait(kv_full.index(i % S), (i // S) & 1)
        s, dp = _products(q, do, ks.index(i % S).reshape((BK, HEAD)), vs.index(i % S).reshape((BK, HEAD)), s, dp)
        s, dp = warpgroup_mma_wait(0, deps=(s, dp))
        for _ in range(TILES - 2):
            g = _score_grad(s, dp, sums, dots, c, mma)
            mbarrier.wait(kv_full.index((i + 1) % S), ((i + 1) // S) & 1)
            dq = warpgroup_mma(g, ks.index(i % S).reshape((BK, HEAD)), dq, is_async=True)
            k, v = ks.index((i + 1) % S).reshape((BK, HEAD)), vs.index((i + 1) % S).reshape((BK, HEAD))
            s, dp = _products(q, do, k, v, s, dp)
            dq, s, dp, g = warpgroup_mma_wait(0, deps=(dq, s, dp, g))
            mbarrier.arrive(kv_empty.index(i % S))
            i += 1
        g = _score_grad(s, dp, sums, dots, c, mma)
        mbarrier.wait(kv_full.index((i + 1) % S), ((i + 1) // S) & 1)
        dq = warpgroup_mma(g, ks.index(i % S).reshape((BK, HEAD)), dq, is_async=True)
        k = ks.index((i + 1) % S).reshape((BK, HEAD)).slice(0, REST)
        v = vs.index((i + 1) % S).reshape((BK, HEAD)).slice(0, REST)
        s_rest, dp_rest = _products(q, do, k, v, none, none)
        dq, s_rest, dp_rest, g = warpgroup_mma_wait(0, deps=(dq, s_rest, dp_rest, g))
        mbarrier.arrive(kv_empty.index(i % S))
        mbarrier.arrive(q_empty.index(n % 2))
        i += 1
        real = (TILES - 1) * BK + gl.arange(0, REST, gl.SliceLayout(0, rest)) < L
        s_rest = gl.where(real[None, :], s_rest, float("-inf"))
        row_r: gl.constexpr = gl.SliceLayout(1, rest)
        sums_r = gl.convert_layout(sums, row_r, assert_trivial=True)
        g = _score_grad(s_rest, dp_rest, sums_r, gl.convert_layout(dots, row_r, assert_trivial=True), c, mma)
        dq = warpgroup_mma(g, k, dq, is_async=True)
        dq, g = warpgroup_mma_wait(0, deps=(dq, g))
        mbarrier.arrive(kv_empty.index(i % S))
        i += 1
        grad = turned_back(dq * scale, cos_ptr, sin_ptr, first, L).to(gl.bfloat16)
        put(dqkv, os.index(GROUP), [head // H, first, (head % H) * HEAD], grad)
    tma.store_wait(0)


@gluon.jit
def _long_queries(qkv, dout, mixed_ptr, dqkv, sums_ptr, dots_ptr, cos_ptr, sin_ptr, units, c, scale, L: gl.constexpr,
                  PADDED: gl.constexpr, H: gl.constexpr, BLOCKS: gl.constexpr, TILES: gl.constexpr, REST: gl.constexpr,
                  BK: gl.constexpr, S: gl.constexpr):  # fmt: skip
    """The first third of dqkv (B, L, 3 * 64 H), and dots (B H, PADDED), zero from L on."""
    qs = gl.allocate_shared_memory(qkv.dtype, [2 * GROUPS, 1, 64, HEAD], qkv.layout)
    ds = gl.allocate_shared_memory(qkv.dtype, [2 * GROUPS, 1, 64, HEAD], qkv.layout)
    ks = gl.allocate_shared_memory(qkv.dtype, [S, 1, BK, HEAD], qkv.layout)
    vs = gl.allocate_shared_memory(qkv.dtype, [S, 1, BK, HEAD], qkv.layout)
    os = gl.allocate_shared_memory(qkv.dtype, [GROUPS, 1, 64, HEAD], qkv.layout)
    bars = (barriers(2, 1), barriers(2, GROUPS), barriers(S, 1), barriers(S, GROUPS))
    at = (mixed_ptr, dqkv, sums_ptr, dots_ptr, cos_ptr, sin_ptr, qs, ds, ks, vs, os, bars, units, c, scale)
    gl.warp_specialize([
        (_compute, (at, 0, L, PADDED, H, BLOCKS, TILES, REST, BK, S)),
        (_compute, (at, 1, L, PADDED, H, BLOCKS, TILES, REST, BK, S)),
        (_compute, (at, 2, L, PADDED, H, BLOCKS, TILES, REST, BK, S)),
        (_load, (qkv, dout, qs, ds, ks, vs, bars, units, H, BLOCKS, TILES, BK, S)),
    ], [4, 4, 1], [MANY, MANY, FEW])  # fmt: skip


def write(
    dqkv: Tensor, dots: Tensor, qkv: Tensor, cos: Tensor, sin: Tensor, mixed: Tensor, sums: Tensor, dout: Tensor,
    heads: int,
) -> None:  # fmt: skip
    """Into dqkv (B, L, 3 D): the queries' gradient before they were turned. Into dots, like sums: outputs @ gradients.

    qkv, mixed and sums as the forward pass left them; dout (B, L, D): the gradient of the mixed values.
    """
    batch, length, _ = qkv.shape
    blocks, scale, one = -(-length // (64 * GROUPS.value)), HEAD.value**-0.5, [1, KEYS, HEAD.value]
    _long_queries[(programs(qkv.device),)](
        descriptor(qkv, one), descriptor(dout, one), mixed, descriptor(dqkv, one), sums, dots, cos, sin,
        batch * heads * blocks, scale * LOG2E, scale, length, sums.shape[1], heads, blocks, *tiles(length, KEYS), KEYS,
        STAGES, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
