# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Rows times a long weight: 128 rows stay in shared memory while the weight streams by.

Two groups of warps take turns at tiles of 128 weight rows: while one finishes its tile, the other has the matrix units.
A stage has one reader, but a group must not look at the ring before its turn: by its parity alone, a slot could be the
other's. One warp loads the weight; another loads the next rows as soon as the last tiles over the present ones let go.
"""

from __future__ import annotations

import math

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from trm.kernels.specialized.tiles import CONSUMER, PRODUCER, barriers, share, store

BLOCK, DEPTH, STAGES = gl.constexpr(128), 64, 4
"""Rows, and weight rows, of a tile; inputs of a stage; stages of the weight."""


def period(rows: int, count: int) -> int:
    """After how many blocks of `rows` a walk in steps of `count` is where it began (`_where`)."""
    blocks: int = -(-rows // BLOCK.value)
    return blocks // math.gcd(blocks, count)


@gluon.jit
def _where(block, blocks, around):
    """The place of a block: shares begin side by side at the end and go towards the beginning in equal steps.

    So at any time all programs are in one region of memory, the first where the kernel before has just written. The
    p-th share of n begins up to n - 1 steps of 1 / n before p blocks / n: n - 1 keeps that on this side of the end.
    """
    n = gl.num_programs(0)
    return blocks - 1 - (block * n + block // around + n - 1) % blocks


@gluon.jit
def _load_rows(x, xs, bars, start, stop, blocks, around, NT: gl.constexpr, KT: gl.constexpr, BK: gl.constexpr):
    x_full, x_empty, _w_full, _w_empty, _turn = bars
    for tile in range(start, stop):
        if (tile == start) | (tile % NT == 0):
            block = tile // NT
            row = _where(block, blocks, around) * BLOCK
            for k in range(KT):
                mbarrier.wait(x_empty.index(k), ((block - start // NT) & 1) ^ 1)
                mbarrier.expect(x_full.index(k), 2 * BLOCK * BK)
                tma.async_copy_global_to_shared(x, [row, k * BK], x_full.index(k), xs.index(k))


@gluon.jit
def _load_weight(w, ws, bars, start, stop, NT: gl.constexpr, KT: gl.constexpr, BK: gl.constexpr, S: gl.constexpr):
    _x_full, _x_empty, w_full, w_empty, _turn = bars
    i = 0
    for tile in range(start, stop):
        for k in range(KT):
            slot = i % S
            mbarrier.wait(w_empty.index(slot), ((i // S) & 1) ^ 1)
            mbarrier.expect(w_full.index(slot), 2 * BLOCK * BK)
            tma.async_copy_global_to_shared(w, [tile % NT * BLOCK, k * BK], w_full.index(slot), ws.index(slot))
            i += 1


@gluon.jit
def _release(bars, k, i, last, S: gl.constexpr):
    """Stage i of the ring, and the rows' k-th inputs after their last tile.

    The branch keeps the assembler from starting the epilogue before it lets go.
    """
    _x_full, x_empty, _w_full, w_empty, _turn = bars
    mbarrier.arrive(w_empty.index(i % S))
    if last:
        mbarrier.arrive(x_empty.index(k))


@gluon.jit
def _multiply(acc, xs, ws, bars, i, block, last, GROUP: gl.constexpr, KT: gl.constexpr, S: gl.constexpr):
    """A tile's products, from stage i of the ring on; two stages' are under way at once."""
    x_full, _x_empty, w_full, _w_empty, turn = bars
    mbarrier.wait(turn.index(GROUP), (i // (2 * KT) & 1) ^ (1 - GROUP))
    for k in range(KT):
        mbarrier.wait(x_full.index(k), block & 1)
        mbarrier.wait(w_full.index((i + k) % S), ((i + k) // S) & 1)
        acc = warpgroup_mma(xs.index(k), ws.index((i + k) % S).permute((1, 0)), acc, use_acc=k > 0, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        if k > 0:
            _release(bars, k - 1, i + k - 1, last, S)
    mbarrier.arrive(turn.index(1 - GROUP))
    acc = warpgroup_mma_wait(0, deps=(acc,))
    _release(bars, KT - 1, i + KT - 1, last, S)
    return acc


@gluon.jit
def _compute(xs, ws, bars, start, stop, blocks, around, GROUP: gl.constexpr, NT: gl.constexpr, KT: gl.constexpr,
             S: gl.constexpr, BEGIN: gl.constexpr, LOOK: gl.constexpr, FINISH: gl.constexpr, args):  # fmt: skip
    acc = gl.zeros((BLOCK, BLOCK), gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16]))
    for k in range(KT):  # where of the first rows one tile is left, the first group's, the second is done with them
        mbarrier.arrive(bars[1].index(k), pred=(start % NT == NT - 1) & (GROUP == 1))
    first = start // NT
    for block in range(first, gl.cdiv(stop, NT)):
        row = _where(block, blocks, around) * BLOCK
        kept = BEGIN(row, args)
        lower, upper = max(start, block * NT), min(stop, block * NT + NT)
        for tile in range(lower + ((lower - start - GROUP) & 1), upper, 2):
            last = tile >= block * NT + NT - 2
            if LOOK is None:
                acc = _multiply(acc, xs, ws, bars, (tile - start) * KT, block - first, last, GROUP, KT, S)
            else:
                new = tile < lower + 2
                acc = _multiply(acc, xs, ws, bars, (tile - start) * KT, block - first, last & ~new, GROUP, KT, S)
                if new:
                    kept = LOOK(xs, row, GROUP, args, kept)
                    for k in range(KT):
                        mbarrier.arrive(bars[1].index(k), pred=last)
            FINISH(acc, row, tile - block * NT, GROUP, args, kept)
    tma.store_wait(0)


@gluon.jit
def staging(out):
    """Shared memory for `send`: a (128, 64) tile a group, in blocks of the descriptor's rows."""
    ROWS: gl.constexpr = out.block_type.shape[0]
    return gl.allocate_shared_memory(out.dtype, [2 * BLOCK // ROWS, ROWS, 64], out.layout)


@gluon.jit
def send(out, staged, row, column, value, GROUP: gl.constexpr):
    """Write a (128, 64) tile through a group's part of `staged`, in its blocks: whole or in halves of 64 rows."""
    if staged.shape[0] == 2:
        whole = staged.index(GROUP)
        store(out, whole, whole, [row, column], value, 0)
    else:
        upper, lower = gl.split(gl.permute(gl.reshape(value, (2, 64, 64)), (1, 2, 0)))
        first, second = staged.index(2 * GROUP), staged.index(2 * GROUP + 1)
        store(out, first, first, [row, column], upper, 1)
        store(out, second, second, [row + 64, column], lower, 1)


@gluon.jit
def stream(x, w, rows, around, NT: gl.constexpr, KT: gl.constexpr, BK: gl.constexpr, S: gl.constexpr,
           BEGIN: gl.constexpr, FINISH: gl.constexpr, args, LOOK: gl.constexpr = None):  # fmt: skip
    """kept = BEGIN(first row, args) for each 128 rows of x, and for their (128, 128) products with each tile of w
    FINISH(products, first row, tile, group, args, kept).

    LOOK: after a group's first products of the rows, kept = LOOK(rows in shared memory, first row, group, args, kept).

    x (rows, KT BK) in blocks [128, BK]; w (128 NT, KT BK) likewise, NT even; S of its stages are in shared memory.
    around: `period` of the rows and the programs.
    """
    xs = gl.allocate_shared_memory(x.dtype, [KT, BLOCK, BK], x.layout)
    ws = gl.allocate_shared_memory(w.dtype, [S, BLOCK, BK], w.layout)
    bars = (barriers(KT, 1), barriers(KT, 2), barriers(S, 1), barriers(S, 1), barriers(2, 1))
    blocks = gl.cdiv(rows, BLOCK)
    start, stop = share(blocks * NT)
    gl.warp_specialize([
        (_compute, (xs, ws, bars, start, stop, blocks, around, 0, NT, KT, S, BEGIN, LOOK, FINISH, args)),
        (_compute, (xs, ws, bars, start, stop, blocks, around, 1, NT, KT, S, BEGIN, LOOK, FINISH, args)),
        (_load_weight, (w, ws, bars, start, stop, NT, KT, BK, S)),
        (_load_rows, (x, xs, bars, start, stop, blocks, around, NT, KT, BK)),
    ], [4, 1, 1], [CONSUMER, PRODUCER, PRODUCER])  # fmt: skip
