# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Channel SwiGLU with fused activations: no epilogue writes a value that the next product can compute.

Gate and up rows of the weight alternate in blocks of PAIR, so that one tile holds both; the gradients of gate and up
keep that order. Matrix products without an epilogue are left to cuBLAS, which is faster there (docs/records).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from trm.kernels.device_math import split_pairs, swiglu, swiglu_grad
from trm.kernels.layout import PAIR

TOKENS, DEPTH = 128, 64
"""Tile: tokens, and inputs a loop iteration reads."""


@triton.jit
def _gate_up(x, w, h, gu, squares_ptr, eps, rows, K: tl.constexpr, N: tl.constexpr, KEEP: tl.constexpr,
             PARTS: tl.constexpr, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
             PACK: tl.constexpr):  # fmt: skip
    """h (rows, N) = swiglu(x @ w.T) with w (2N, K) paired; KEEP: also the products, gu (rows, 2N), paired.

    PARTS: of the squares of x, if its norm is the input; 0 for x itself.
    """
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, BM) * (N // BN), PROGRAMS):
        m, n = (tile // (N // BN)) * BM, (tile % (N // BN)) * BN
        both = tl.zeros((BM, 2 * BN), tl.float32)
        for k in range(0, K, BK):
            both = tl.dot(x.load([m, k]), w.load([2 * n, k]).T, both)
        gate, up = split_pairs(both, BM, BN, PACK)
        normed = up
        if PARTS:
            at = m + tl.arange(0, BM)
            part = at[:, None] * PARTS + tl.arange(0, PARTS)[None, :]
            squares = tl.load(squares_ptr + part, mask=(at < rows)[:, None], other=1.0)
            size = tl.sqrt(tl.sum(squares, axis=1) / K + eps)[:, None]
            gate /= size
            normed = up / size
        h.store([m, n], swiglu(gate, up).to(h.dtype))
        if KEEP:
            gu.store([m, 2 * n], gate.to(gu.dtype))
            gu.store([m, 2 * n + PACK], normed.to(gu.dtype))


@triton.jit
def _swiglu_grad(gu, dgu, dh, m, n, PACK: tl.constexpr):
    """One block of PACK inner units: its kept products, and their gradient, given that of the hidden values."""
    gate, up = gu.load([m, n]).to(tl.float32), gu.load([m, n + PACK]).to(tl.float32)
    dgate, dup, _ = swiglu_grad(gate, up, dh)
    dgu.store([m, n], dgate.to(dgu.dtype))
    dgu.store([m, n + PACK], dup.to(dgu.dtype))


@triton.jit
def _hidden_grad(dr, wd, gu, dgu, rows, K: tl.constexpr, N: tl.constexpr, PROGRAMS: tl.constexpr, BM: tl.constexpr,
                 BK: tl.constexpr, PACK: tl.constexpr):  # fmt: skip
    """dgu (rows, 2N), paired: the SwiGLU's gradient, where the hidden gradient is dr (rows, K) @ wd (K, N)."""
    BN: tl.constexpr = 2 * PACK
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, BM) * (N // BN), PROGRAMS):
        m, n = (tile // (N // BN)) * BM, (tile % (N // BN)) * BN
        dh = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            dh = tl.dot(dr.load([m, k]), wd.load([k, n]), dh)
        left, right = tl.split(tl.permute(tl.reshape(dh, (BM, 2, PACK)), (0, 2, 1)))
        _swiglu_grad(gu, dgu, left, m, 2 * n, PACK)
        _swiglu_grad(gu, dgu, right, m, 2 * n + 2 * PACK, PACK)


def _programs(device: torch.device, per_multiprocessor: int) -> int:
    """Programs of a persistent grid."""
    if device.type != "cuda":
        return per_multiprocessor
    return per_multiprocessor * torch.cuda.get_device_properties(device).multi_processor_count


def gate_up(x: Tensor, w: Tensor, keep: bool, squares: Tensor | None = None, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """(hidden (rows, N), products (rows, 2N) in paired order, or hidden again unless `keep`).

    squares, of x (layout.Sum): both are of x's norm, and hidden is as much larger as x is.

    With products to write, two small programs a multiprocessor hide each other's stores; without, one large one is
    faster.
    """
    rows, width = x.shape
    inner = len(w) // 2
    h = x.new_empty(rows, inner)
    gu = x.new_empty(rows, 2 * inner) if keep else h
    tile, warps, stages, share = (PAIR, 4, 3, 2) if keep else (2 * PAIR, 8, 4, 1)
    programs = _programs(x.device, share)
    _gate_up[(programs,)](
        TensorDescriptor.from_tensor(x, [TOKENS, DEPTH]), TensorDescriptor.from_tensor(w, [2 * tile, DEPTH]),
        TensorDescriptor.from_tensor(h, [TOKENS, tile]), TensorDescriptor.from_tensor(gu, [TOKENS, PAIR]),
        h if squares is None else squares, eps, rows, width, inner, keep,
        0 if squares is None else squares.shape[1], programs, TOKENS, tile, DEPTH, PAIR,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return h, gu


def hidden_grad(dr: Tensor, wd: Tensor, gu: Tensor) -> Tensor:
    """dgu (rows, 2N), paired, from dr (rows, D), wd (D, N) and the kept products. N: a multiple of 2 PAIR.

    Tiles of two pairs halve the reads through the second-level cache, the bottleneck of tiles of one pair.
    """
    rows, width = dr.shape
    dgu = torch.empty_like(gu)
    programs = _programs(dr.device, 2)
    _hidden_grad[(programs,)](
        TensorDescriptor.from_tensor(dr, [TOKENS, DEPTH]), TensorDescriptor.from_tensor(wd, [DEPTH, 2 * PAIR]),
        TensorDescriptor.from_tensor(gu, [TOKENS, PAIR]), TensorDescriptor.from_tensor(dgu, [TOKENS, PAIR]),
        rows, width, wd.shape[1], programs, TOKENS, DEPTH, PAIR, num_warps=8, num_stages=3,
    )  # fmt: skip
    return dgu
