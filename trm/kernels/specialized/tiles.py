# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Shared parts of the warp-specialized kernels: descriptors, barriers, stores, functions of tiles."""

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

CONSUMER, PRODUCER, AT_START = gl.constexpr(232), gl.constexpr(40), 168
"""Registers a thread: a computing and a loading warp group's, and those before they trade. 2 a + b = 3 c."""


def descriptor(tensor: Tensor, block: list[int]) -> TensorDescriptor:
    """Bulk copies of blocks, laid out in shared memory for matrix products; reads outside the tensor give zero."""
    return TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16))


def programs(device: torch.device) -> int:
    """One program a multiprocessor."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132


@gluon.jit
def unset(COUNT: gl.constexpr):
    """COUNT barriers that still need `mbarrier.init`."""
    return gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """COUNT barriers whose phase ends after ARRIVALS."""
    found = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(found.index(i), count=ARRIVALS)
    return found


@gluon.jit
def share(units):
    """First and one past the last of `units` that belong to this program of a persistent grid."""
    pid, count = gl.program_id(0), gl.num_programs(0)
    return pid * units // count, (pid + 1) * units // count


@gluon.jit
def turns(units):
    """How many of `units` fall to this program of a persistent grid when they are dealt in turn."""
    return gl.cdiv(units - gl.program_id(0), gl.num_programs(0))


@gluon.jit
def dealt(n):
    """This program's n-th unit. Dealt in turn, all programs are in one region of memory at any time."""
    return n * gl.num_programs(0) + gl.program_id(0)


@gluon.jit
def store(out, tile, view, at, value, PENDING: gl.constexpr):
    """Store in bulk a tile that gets `value` through `view`, once all stores before but PENDING have read theirs."""
    tma.store_wait(PENDING)
    view.store(value)
    fence_async_shared()
    tma.async_copy_shared_to_global(out, at, tile)


@gluon.jit
def tanh(x):
    return gl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def exp2(x):
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def swiglu(gate, up):
    half = 0.5 * gate
    return (half * up) * (tanh(half) + 1.0)


@gluon.jit
def swiglu_grad(gate, up, grad):
    """(d gate, d up, hidden)."""
    s = 0.5 * tanh(0.5 * gate) + 0.5
    silu = gate * s
    return grad * up * (s + silu - silu * s), grad * silu, silu * up


@gluon.jit
def split_pairs(x, ROWS: gl.constexpr, WIDTH: gl.constexpr, PACK: gl.constexpr):
    """(ROWS, 2 WIDTH), blocks of PACK alternating -> the halves; no data moves."""
    pairs = gl.reshape(x, (ROWS, WIDTH // PACK, 2, PACK))
    left, right = gl.split(gl.permute(pairs, (0, 1, 3, 2)))
    return gl.reshape(left, (ROWS, WIDTH)), gl.reshape(right, (ROWS, WIDTH))


@gluon.jit
def join_pairs(left, right, ROWS: gl.constexpr, WIDTH: gl.constexpr, PACK: gl.constexpr):
    """The inverse of `split_pairs`."""
    a, b = gl.reshape(left, (ROWS, WIDTH // PACK, PACK)), gl.reshape(right, (ROWS, WIDTH // PACK, PACK))
    return gl.reshape(gl.permute(gl.join(a, b), (0, 1, 3, 2)), (ROWS, 2 * WIDTH))
