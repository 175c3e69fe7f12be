# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The channel MLP's hidden gradient, and its SwiGLU's: weights stay in registers while token rows stream by.

A program has 128 hidden units, half of them in each of two groups of warps, and a share of the tokens. One warp brings
the rows; another brings the kept products, which are replaced in place, and sends them off, so that neither waits for
the other. A tile's products run while the one before is activated. Tiles are transposed: hidden units, then tokens.
"""

from __future__ import annotations

import torch
import triton
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

from trm.kernels.specialized.tiles import (
    AT_START,
    CONSUMER,
    PRODUCER,
    barriers,
    dealt,
    descriptor,
    programs,
    swiglu_grad,
    turns,
)

BLOCK, UNITS, BYTES = gl.constexpr(64), gl.constexpr(128), gl.constexpr(2 * 2 * 64 * 64)
"""Sides of a block; hidden units of a program; bytes of two blocks in bfloat16, which a stage or a buffer holds."""
STAGES, BUFFERS = 6, 8
"""Of rows, 128 inputs each; of products, gate and up of a tile. Together they fill shared memory."""


@gluon.jit
def _put(x, at, beside, tiles, full, empty, i, S: gl.constexpr):
    """Two blocks into stage i of the ring."""
    slot = i % S
    mbarrier.wait(empty.index(slot), ((i // S) & 1) ^ 1)
    mbarrier.expect(full.index(slot), BYTES)
    tma.async_copy_global_to_shared(x, at, full.index(slot), tiles.index(2 * slot))
    tma.async_copy_global_to_shared(x, beside, full.index(slot), tiles.index(2 * slot + 1))


@gluon.jit
def _stream(dr, wd, ring, full, empty, count, unit, KT: gl.constexpr, S: gl.constexpr):
    """The weights of both groups once, then rows."""
    for k in gl.static_range(2 * KT):
        _put(wd, [k * BLOCK, unit], [k * BLOCK, unit + BLOCK], ring, full, empty, k, S)
    i = 2 * KT
    for t in range(count):
        row = dealt(t) * BLOCK
        for k in gl.static_range(KT):
            _put(dr, [row, 2 * k * BLOCK], [row, (2 * k + 1) * BLOCK], ring, full, empty, i, S)
            i += 1


@gluon.jit
def _place(i, unit):
    """Row and column of the products' i-th tile: the groups take turns."""
    return dealt(i // 2) * BLOCK, 2 * unit + (i % 2) * (2 * BLOCK)


@gluon.jit
def _fetch(gu, gus, full, count, unit, i, B: gl.constexpr):
    row, column = _place(i, unit)
    slot, more = i % B, i // 2 < count
    mbarrier.expect(full.index(slot), BYTES, pred=more)
    tma.async_copy_global_to_shared(gu, [row, column], full.index(slot), gus.index(2 * slot), pred=more)
    tma.async_copy_global_to_shared(gu, [row, column + BLOCK], full.index(slot), gus.index(2 * slot + 1), pred=more)


@gluon.jit
def _carry(gu, dgu, gus, full, done, count, unit, B: gl.constexpr):
    """Products in, gradients out; a buffer is filled again once the store after its own has begun."""
    for i in range(B):
        _fetch(gu, gus, full, count, unit, i, B)
    for i in range(2 * count):
        row, column = _place(i, unit)
        slot = i % B
        mbarrier.wait(done.index(slot), (i // B) & 1)
        tma.async_copy_shared_to_global(dgu, [row, column], gus.index(2 * slot))
        tma.async_copy_shared_to_global(dgu, [row, column + BLOCK], gus.index(2 * slot + 1))
        tma.store_wait(2)
        if i > 0:
            _fetch(gu, gus, full, count, unit, i - 1 + B, B)
    tma.store_wait(0)


@gluon.jit
def _weights(ring, full, empty, k: gl.constexpr, GROUP: gl.constexpr, S: gl.constexpr):
    """The group's, of 64 inputs, in registers."""
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    mbarrier.wait(full.index(k % S), (k // S) & 1)
    w = ring.index(2 * (k % S) + GROUP).permute((1, 0)).load(gl.DotOperandLayout(0, mma, 2))
    mbarrier.arrive(empty.index(k % S))
    return w


@gluon.jit
def _multiply(w, ring, full, acc, i, FIRST: gl.constexpr, COUNT: gl.constexpr, S: gl.constexpr):
    """Start the products of COUNT stages of the tile whose stages begin at i."""
    for k in gl.static_range(FIRST, FIRST + COUNT):
        slot = (i + k) % S
        mbarrier.wait(full.index(slot), ((i + k) // S) & 1)
        acc = warpgroup_mma(w[2 * k], ring.index(2 * slot).permute((1, 0)), acc, use_acc=k > 0, is_async=True)
        acc = warpgroup_mma(w[2 * k + 1], ring.index(2 * slot + 1).permute((1, 0)), acc, is_async=True)
    return acc


@gluon.jit
def _finished(acc, empty, i, FIRST: gl.constexpr, COUNT: gl.constexpr, S: gl.constexpr):
    """The products started last; their stages are let go."""
    acc = warpgroup_mma_wait(0, deps=(acc,))
    for k in gl.static_range(FIRST, FIRST + COUNT):
        mbarrier.arrive(empty.index((i + k) % S))
    return acc


@gluon.jit
def _activate(gus, dh, slot, FIRST: gl.constexpr):
    """Replace the products of 32 tokens by their gradients; dh is transposed."""
    gate = gus.index(2 * slot).slice(FIRST, 32).permute((1, 0))
    up = gus.index(2 * slot + 1).slice(FIRST, 32).permute((1, 0))
    layout: gl.constexpr = dh.type.layout
    dgate, dup, _h = swiglu_grad(gate.load(layout).to(gl.float32), up.load(layout).to(gl.float32), dh)
    gate.store(dgate.to(gus.dtype))
    up.store(dup.to(gus.dtype))


@gluon.jit
def _give(gus, done, slot):
    """The gradients in a buffer may be stored."""
    fence_async_shared()
    mbarrier.arrive(done.index(slot))


@gluon.jit
def _halves(dh):
    """(64, 64) -> of the first and of the last 32 tokens; no data moves."""
    return gl.split(gl.permute(gl.reshape(dh, (64, 2, 32)), (0, 2, 1)))


@gluon.jit
def _compute(ring, gus, bars, count, GROUP: gl.constexpr, KT: gl.constexpr, S: gl.constexpr,
             B: gl.constexpr):  # fmt: skip
    full, empty, gu_full, done = bars
    HALF: gl.constexpr = KT // 2
    zero = gl.zeros((64, 64), gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))
    w0, w1 = _weights(ring, full, empty, 0, GROUP, S), _weights(ring, full, empty, 1, GROUP, S)
    w2, w3 = _weights(ring, full, empty, 2, GROUP, S), _weights(ring, full, empty, 3, GROUP, S)
    w4, w5 = _weights(ring, full, empty, 4, GROUP, S), _weights(ring, full, empty, 5, GROUP, S)
    w6, w7 = _weights(ring, full, empty, 6, GROUP, S), _weights(ring, full, empty, 7, GROUP, S)
    w = (w0, w1, w2, w3, w4, w5, w6, w7)
    i, j = 2 * KT, GROUP
    dh = _finished(_multiply(w, ring, full, zero, i, 0, KT, S), empty, i, 0, KT, S)
    for _t in range(1, count):
        i += KT
        early, late = _halves(dh)
        ahead = _multiply(w, ring, full, zero, i, 0, HALF, S)
        mbarrier.wait(gu_full.index(j % B), (j // B) & 1)
        _activate(gus, early, j % B, 0)
        ahead = _finished(ahead, empty, i, 0, HALF, S)
        ahead = _multiply(w, ring, full, ahead, i, HALF, HALF, S)
        _activate(gus, late, j % B, 32)
        _give(gus, done, j % B)
        dh = _finished(ahead, empty, i, HALF, HALF, S)
        j += 2
    early, late = _halves(dh)
    mbarrier.wait(gu_full.index(j % B), (j // B) & 1)
    _activate(gus, early, j % B, 0)
    _activate(gus, late, j % B, 32)
    _give(gus, done, j % B)


@gluon.jit
def _hidden_grad(dr, wd, gu, dgu, rows, KT: gl.constexpr, S: gl.constexpr, B: gl.constexpr):
    """dgu (rows, 2N), paired, from dr (rows, 128 KT), wd (128 KT, N) and gu; grid: parts of the rows, N / UNITS."""
    ring = gl.allocate_shared_memory(dr.dtype, [2 * S, 64, 64], dr.layout)
    gus = gl.allocate_shared_memory(gu.dtype, [2 * B, 64, 64], gu.layout)
    full, empty, gu_full, done = barriers(S, 1), barriers(S, 2), barriers(B, 1), barriers(B, 1)
    bars = (full, empty, gu_full, done)
    count, unit = turns(gl.cdiv(rows, BLOCK)), gl.program_id(1) * UNITS
    gl.warp_specialize([
        (_compute, (ring, gus, bars, count, 0, KT, S, B)),
        (_compute, (ring, gus, bars, count, 1, KT, S, B)),
        (_stream, (dr, wd, ring, full, empty, count, unit, KT, S)),
        (_carry, (gu, dgu, gus, gu_full, done, count, unit, B)),
    ], [4, 1, 1], [CONSUMER, PRODUCER, PRODUCER])  # fmt: skip


def hidden_grad(dr: Tensor, wd: Tensor, gu: Tensor) -> Tensor:
    """dgu (rows, 2N), paired, from dr (rows, D), wd (D, N) and the kept products.

    D: 512, of which a group's registers hold 64 units. N: a multiple of UNITS, with a multiprocessor for each of them.
    """
    rows, width = dr.shape
    dgu = torch.empty_like(gu)
    slices = wd.shape[1] // UNITS.value
    parts = min(programs(dr.device) // slices, triton.cdiv(rows, BLOCK.value))
    block = [BLOCK.value, BLOCK.value]
    _hidden_grad[(parts, slices)](
        descriptor(dr, block), descriptor(wd, block), descriptor(gu, block), descriptor(dgu, block), rows,
        width // UNITS.value, STAGES, BUFFERS, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
    return dgu
