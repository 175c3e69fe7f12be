# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Token and puzzle tables: looked up where a cycle begins, and the gradient of the first.

The gradient is a product with one-hot rows: no atomics, a fixed order.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from trm.kernels.layout import Anew, Tables

_PARTS, _WIDTH, _TOKENS = 128, 128, 64
_ROWS = 8
"""Token rows of a program that looks up."""


@triton.jit
def _embedding(rows, real, col, tables, kind: tl.constexpr, D: tl.constexpr, L: tl.constexpr, P: tl.constexpr,
               E: tl.constexpr):  # fmt: skip
    """The embedding of token rows, rounded where the definition rounds: in `kind`, before and after it is scaled."""
    tokens_ptr, ids_ptr, puzzles_ptr, identifiers_ptr, scale = tables
    b, pos = rows // L, rows % L
    token, puzzle = real & (pos >= P), real & (pos < P)
    id = tl.load(ids_ptr + b * (L - P) + pos - P, mask=token, other=0)
    found = tl.load(tokens_ptr + id[:, None] * D + col, mask=token[:, None], other=0.0).to(kind)
    if E:
        identifier = tl.load(identifiers_ptr + b, mask=puzzle, other=0).to(tl.int64)
        place = pos[:, None] * D + col
        at = identifier[:, None] * E + place
        own = tl.load(puzzles_ptr + at, mask=puzzle[:, None] & (place < E), other=0.0).to(kind)
        found = tl.where(token[:, None], found, own)
    return (found.to(tl.float32) * scale).to(kind)


@triton.jit
def _inject(h_ptr, l_ptr, tables, anew, injection_ptr, x_ptr, T, D: tl.constexpr, L: tl.constexpr, P: tl.constexpr,
            E: tl.constexpr, ANEW: tl.constexpr, R: tl.constexpr):  # fmt: skip
    """injection = z_H + embedding and x = z_L + injection of R token rows, after halted ones have started ANEW."""
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    col = tl.arange(0, D)[None, :]
    real = rows < T
    at, every = rows[:, None] * D + col, real[:, None]
    kind: tl.constexpr = h_ptr.dtype.element_ty
    e = _embedding(rows, real, col, tables, kind, D, L, P, E)
    if ANEW:
        halted_ptr, h_init_ptr, l_init_ptr = anew
        new = (tl.load(halted_ptr + rows // L, mask=real, other=0) != 0)[:, None]
        h_init = tl.broadcast_to(tl.load(h_init_ptr + col), (R, D))
        h = tl.where(new, h_init, tl.load(h_ptr + at, mask=every & ~new, other=0.0))
        l = tl.where(new, tl.load(l_init_ptr + col), tl.load(l_ptr + at, mask=every & ~new, other=0.0))  # noqa: E741
        tl.store(h_ptr + at, h_init, mask=every & new)
    else:
        h = tl.load(h_ptr + at, mask=every, other=0.0)
        l = tl.load(l_ptr + at, mask=every, other=0.0)  # noqa: E741
    injection = (h.to(tl.float32) + e.to(tl.float32)).to(kind)
    tl.store(injection_ptr + at, injection, mask=every)
    tl.store(x_ptr + at, (l.to(tl.float32) + injection.to(tl.float32)).to(kind), mask=every)


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


def inject(z_H: Tensor, z_L: Tensor, tables: Tables, anew: Anew | None) -> tuple[Tensor, Tensor]:
    """(injection = z_H + embedding, z_L + injection), all (B, L, D), D a power of two.

    anew: its sequences start from the initial states first; their z_H is written, z_L is not.
    """
    _, length, width = z_H.shape
    injection, x = torch.empty_like(z_H), torch.empty_like(z_H)
    puzzles = tables.tokens if tables.puzzles is None else tables.puzzles
    _inject[(triton.cdiv(z_H.numel() // width, _ROWS),)](
        z_H, z_L, (tables.tokens, tables.ids, puzzles, tables.identifiers, math.sqrt(width)),
        (z_H, z_H, z_H) if anew is None else (anew.halted, anew.z_H, anew.z_L), injection, x, z_H.numel() // width,
        width, length, length - tables.ids.shape[1], 0 if tables.puzzles is None else puzzles.shape[1],
        anew is not None, _ROWS, num_warps=4,
    )  # fmt: skip
    return injection, x


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
