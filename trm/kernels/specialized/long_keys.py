# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The gradient of keys and values of attention over long sequences: one warp loads, two groups take 64 keys each.

Queries and their outputs' gradients stream by in tiles that all groups read. Scores are computed the other way round,
keys by queries, so that weights and their gradients are left factors straight from registers. Each sum is made by one
group, tile after tile, so its order is fixed. trm/kernels/specialized/long_queries.py comes before it.
"""

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from trm.kernels.specialized.long_tiles import HEAD, LOG2E, put, turned_back
from trm.kernels.specialized.long_tiles import tiles as query_tiles
from trm.kernels.specialized.tiles import AT_START, CONSUMER, PRODUCER, barriers, descriptor, exp2, programs

GROUPS = gl.constexpr(2)
"""Computing groups of warps: two, whose registers hold keys and values as left factors too."""
STAGES = 4
"""Tiles of 64 queries in flight."""


@gluon.jit
def _block(t, BLOCKS: gl.constexpr):
    """Which keys of its head a unit takes: another for each head, or some programs would have all the short ones."""
    return (t + t // BLOCKS) % BLOCKS


@gluon.jit
def _load(qkv, dout, sums, dots, tiles, bars, units, H: gl.constexpr, BLOCKS: gl.constexpr, TILES: gl.constexpr,
          S: gl.constexpr):  # fmt: skip
    qs, ds, ls, rs, ks, vs, _os = tiles
    kv_full, kv_empty, q_full, q_empty = bars
    i = 0
    n = -1
    for t in range(gl.program_id(0), units, gl.num_programs(0)):
        head = t // BLOCKS
        b, column = head // H, (head % H) * HEAD
        block = _block(t, BLOCKS)
        n += 1
        full = kv_full.index(n % 2)
        mbarrier.wait(kv_empty.index(n % 2), ((n // 2) & 1) ^ 1)
        mbarrier.expect(full, GROUPS * 2 * 64 * HEAD * 2)
        for g in gl.static_range(GROUPS):
            row = block * (64 * GROUPS) + 64 * g
            tma.async_copy_global_to_shared(qkv, [b, row, H * HEAD + column], full, ks.index(n % 2 * GROUPS + g))
            tma.async_copy_global_to_shared(qkv, [b, row, 2 * H * HEAD + column], full, vs.index(n % 2 * GROUPS + g))
        for j in range(TILES):
            slot = i % S
            mbarrier.wait(q_empty.index(slot), ((i // S) & 1) ^ 1)
            mbarrier.expect(q_full.index(slot), 2 * 64 * HEAD * 2 + 2 * 64 * 4)
            tma.async_copy_global_to_shared(qkv, [b, j * 64, column], q_full.index(slot), qs.index(slot))
            tma.async_copy_global_to_shared(sums, [head, j * 64], q_full.index(slot), ls.index(slot))
            tma.async_copy_global_to_shared(dout, [b, j * 64, column], q_full.index(slot), ds.index(slot))
            tma.async_copy_global_to_shared(dots, [head, j * 64], q_full.index(slot), rs.index(slot))
            i += 1


@gluon.jit
def _by_query(tile, WIDTH: gl.constexpr, mma: gl.constexpr):
    """The first WIDTH of (1, 64) float32 in shared memory, as a row of a product."""
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    whole = tile._reinterpret(gl.float32, (64,), flat)
    return whole.slice(0, WIDTH).load(gl.SliceLayout(0, mma))[None, :]


@gluon.jit
def _products(k, v, q, do, s, dp):
    """Begin a tile's scores and the gradient of its weights, in the place of s and dp."""
    s = warpgroup_mma(k, q.permute((1, 0)), s, use_acc=False, is_async=True)
    return s, warpgroup_mma(v, do.permute((1, 0)), dp, use_acc=False, is_async=True)


@gluon.jit
def _factors(s, dp, sums, dots, c, mma: gl.constexpr):
    """A tile's weights and the gradient of its scores, as left factors."""
    left: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    p = exp2(s * c - _by_query(sums, s.shape[1], mma))
    weights = gl.convert_layout(p.to(gl.bfloat16), left)
    return weights, gl.convert_layout((p * (dp - _by_query(dots, s.shape[1], mma))).to(gl.bfloat16), left)


@gluon.jit
def _sums(k, v, tiles, bars, i, c, TILES: gl.constexpr, REST: gl.constexpr, S: gl.constexpr):
    """(dk, dv) of a group's keys and values over all tiles of queries, the first of which is the i-th."""
    qs, ds, ls, rs, _ks, _vs, _os = tiles
    _kv_full, _kv_empty, q_full, q_empty = bars
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    rest: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
    s, dp = gl.zeros((64, 64), gl.float32, mma), gl.zeros((64, 64), gl.float32, mma)
    none = gl.zeros((64, REST), gl.float32, rest)
    dk, dv = gl.zeros((64, HEAD), gl.float32, mma), gl.zeros((64, HEAD), gl.float32, mma)
    q, do = qs.index(i % S).reshape((64, HEAD)), ds.index(i % S).reshape((64, HEAD))
    mbarrier.wait(q_full.index(i % S), (i // S) & 1)
    s, dp = _products(k, v, q, do, s, dp)
    s, dp = warpgroup_mma_wait(0, deps=(s, dp))
    for _ in range(TILES - 2):
        weights, g = _factors(s, dp, ls.index(i % S), rs.index(i % S), c, mma)
        mbarrier.wait(q_full.index((i + 1) % S), ((i + 1) // S) & 1)
        dv = warpgroup_mma(weights, ds.index(i % S).reshape((64, HEAD)), dv, is_async=True)
        dk = warpgroup_mma(g, qs.index(i % S).reshape((64, HEAD)), dk, is_async=True)
        q, do = qs.index((i + 1) % S).reshape((64, HEAD)), ds.index((i + 1) % S).reshape((64, HEAD))
        s, dp = _products(k, v, q, do, s, dp)
        dv, dk, s, dp, weights, g = warpgroup_mma_wait(0, deps=(dv, dk, s, dp, weights, g))
        mbarrier.arrive(q_empty.index(i % S))
        i += 1
    weights, g = _factors(s, dp, ls.index(i % S), rs.index(i % S), c, mma)
    mbarrier.wait(q_full.index((i + 1) % S), ((i + 1) // S) & 1)
    dv = warpgroup_mma(weights, ds.index(i % S).reshape((64, HEAD)), dv, is_async=True)
    dk = warpgroup_mma(g, qs.index(i % S).reshape((64, HEAD)), dk, is_async=True)
    q = qs.index((i + 1) % S).reshape((64, HEAD)).slice(0, REST)
    do = ds.index((i + 1) % S).reshape((64, HEAD)).slice(0, REST)
    s_rest, dp_rest = _products(k, v, q, do, none, none)
    dv, dk, s_rest, dp_rest, weights, g = warpgroup_mma_wait(0, deps=(dv, dk, s_rest, dp_rest, weights, g))
    mbarrier.arrive(q_empty.index(i % S))
    i += 1
    weights, g = _factors(s_rest, dp_rest, ls.index(i % S), rs.index(i % S), c, rest)
    dv = warpgroup_mma(weights, do, dv, is_async=True)
    dk = warpgroup_mma(g, q, dk, is_async=True)
    dv, dk, weights, g = warpgroup_mma_wait(0, deps=(dv, dk, weights, g))
    mbarrier.arrive(q_empty.index(i % S))
    return dk, dv


@gluon.jit
def _pass_by(bars, i, TILES: gl.constexpr, S: gl.constexpr):
    """Let go of all tiles of queries, each once it is there: no key of the group is real."""
    _kv_full, _kv_empty, q_full, q_empty = bars
    for j in range(i, i + TILES):
        mbarrier.wait(q_full.index(j % S), (j // S) & 1)
        mbarrier.arrive(q_empty.index(j % S))


@gluon.jit
def _compute(at, GROUP: gl.constexpr, L: gl.constexpr, H: gl.constexpr, BLOCKS: gl.constexpr, TILES: gl.constexpr,
             REST: gl.constexpr, S: gl.constexpr):  # fmt: skip
    dqkv, cos_ptr, sin_ptr, tiles, bars, units, c, scale = at
    _qs, _ds, _ls, _rs, ks, vs, os = tiles
    kv_full, kv_empty, _q_full, _q_empty = bars
    left: gl.constexpr = gl.DotOperandLayout(0, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16]), 2)
    i = 0
    n = -1
    for t in range(gl.program_id(0), units, gl.num_programs(0)):
        n += 1
        head, first = t // BLOCKS, _block(t, BLOCKS) * (64 * GROUPS) + 64 * GROUP
        mbarrier.wait(kv_full.index(n % 2), (n // 2) & 1)
        if first < L:
            k = ks.index(n % 2 * GROUPS + GROUP).reshape((64, HEAD)).load(left)
            v = vs.index(n % 2 * GROUPS + GROUP).reshape((64, HEAD)).load(left)
            dk, dv = _sums(k, v, tiles, bars, i, c, TILES, REST, S)
            mbarrier.arrive(kv_empty.index(n % 2))
            grad = turned_back(dk * scale, cos_ptr, sin_ptr, first, L).to(gl.bfloat16)
            column = (head % H) * HEAD
            put(dqkv, os.index(2 * GROUP), [head // H, first, H * HEAD + column], grad)
            put(dqkv, os.index(2 * GROUP + 1), [head // H, first, 2 * H * HEAD + column], dv.to(gl.bfloat16))
        else:
            mbarrier.arrive(kv_empty.index(n % 2))
            _pass_by(bars, i, TILES, S)
        i += TILES
    tma.store_wait(0)


@gluon.jit
def _long_keys(qkv, dout, dqkv, sums, dots, cos_ptr, sin_ptr, units, c, scale, L: gl.constexpr, H: gl.constexpr,
               BLOCKS: gl.constexpr, TILES: gl.constexpr, REST: gl.constexpr, S: gl.constexpr):  # fmt: skip
    """The second and the last third of dqkv (B, L, 3 * 64 H)."""
    qs = gl.allocate_shared_memory(qkv.dtype, [S, 1, 64, HEAD], qkv.layout)
    ds = gl.allocate_shared_memory(qkv.dtype, [S, 1, 64, HEAD], qkv.layout)
    ls = gl.allocate_shared_memory(gl.float32, [S, 1, 64], sums.layout)
    rs = gl.allocate_shared_memory(gl.float32, [S, 1, 64], sums.layout)
    ks = gl.allocate_shared_memory(qkv.dtype, [2 * GROUPS, 1, 64, HEAD], qkv.layout)
    vs = gl.allocate_shared_memory(qkv.dtype, [2 * GROUPS, 1, 64, HEAD], qkv.layout)
    os = gl.allocate_shared_memory(qkv.dtype, [2 * GROUPS, 1, 64, HEAD], qkv.layout)
    tiles = (qs, ds, ls, rs, ks, vs, os)
    bars = (barriers(2, 1), barriers(2, GROUPS), barriers(S, 1), barriers(S, GROUPS))
    at = (dqkv, cos_ptr, sin_ptr, tiles, bars, units, c, scale)
    gl.warp_specialize([
        (_compute, (at, 0, L, H, BLOCKS, TILES, REST, S)),
        (_compute, (at, 1, L, H, BLOCKS, TILES, REST, S)),
        (_load, (qkv, dout, sums, dots, tiles, bars, units, H, BLOCKS, TILES, S)),
    ], [4, 1], [CONSUMER, PRODUCER])  # fmt: skip


def write(
    dqkv: Tensor, dots: Tensor, qkv: Tensor, cos: Tensor, sin: Tensor, sums: Tensor, dout: Tensor, heads: int
) -> None:
    """Into dqkv (B, L, 3 D): the gradients of keys, before they were turned, and values. dots: of the queries' pass."""
    batch, length, _ = qkv.shape
    blocks, scale, one = -(-length // (64 * GROUPS.value)), HEAD.value**-0.5, [1, 64, HEAD.value]
    plain = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)
    rows = (TensorDescriptor.from_tensor(x, [1, 64], plain) for x in (sums, dots))
    _long_keys[(programs(qkv.device),)](
        descriptor(qkv, one), descriptor(dout, one), descriptor(dqkv, one), *rows, cos, sin, batch * heads * blocks,
        scale * LOG2E, scale, length, heads, blocks, *query_tiles(length, 64), STAGES, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
