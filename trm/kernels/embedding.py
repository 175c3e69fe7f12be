# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Gradient of a token table as a product with one-hot rows: no atomics, a fixed order. Knows no model."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_PARTS, _WIDTH, _TOKENS = 128, 128, 64


@triton.jit
def _token_grad(ids_ptr, d_ptr, out_ptr, B, CALLS: tl.constexpr, L: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
                V: tl.constexpr, PARTS: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr):  # fmt: skip
    part = tl.program_id(0)
    cols = tl.program_id(1) * BD + tl.arange(0, BD)
    vocab = tl.arange(0, V)
    total = tl.zeros((V, BD), tl.float32)
    for b in range(part * B // PARTS, (part + 1) * B // PARTS):
        for s0 in range(0, L - P, BT):
            s = s0 + tl.arange(0, BT)
            ids = tl.load(ids_ptr + b * (L - P) + s, mask=s < L - P, other=-1)
            chosen = (vocab[:, None] == ids[None, :]).to(d_ptr.dtype.element_ty)
            for call in range(CALLS):
                row = (call * B + b).to(tl.int64) * L + P + s
                d = tl.load(d_ptr + row[:, None] * D + cols[None, :], mask=(s < L - P)[:, None], other=0.0)
                total = tl.dot(chosen, d, total)
    tl.store(out_ptr + (part * V + vocab)[:, None] * D + cols[None, :], total)


def token_grad(ids: Tensor, d: Tensor, prefix: int, vocab: int) -> Tensor:
    """Sum of d (calls, B, L, D) over calls and over the positions that hold each token: float32 (vocab, D).

    ids: int32 (B, L - prefix).
    """
    calls, batch, length, width = d.shape
    parts, rows, block = min(_PARTS, batch), max(16, triton.next_power_of_2(vocab)), min(_WIDTH, width)
    out = d.new_empty(parts, rows, width, dtype=torch.float32)
    _token_grad[(parts, width // block)](
        ids, d, out, batch, calls, length, prefix, width, rows, parts, block, _TOKENS, num_warps=4
    )
    return out.sum(0)[:vocab]
