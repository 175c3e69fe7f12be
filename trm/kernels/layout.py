"""How the fused kernels get their weights, gate/up products and tables.

A tile must hold a gate and its up value, so the two halves of a SwiGLU's first weight alternate in blocks of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PAD = 128
"""Width of the token mixer's packed weights: the longest sequence it takes."""
CHUNK = 32
"""Block of the token mixer's inner units."""
PAIR = 64
"""Block of the channel MLP's inner units."""


@dataclass(frozen=True)
class Tables:
    """The tables of an embedding: a prefix of L - S positions from a puzzle's row, then a row a token."""

    tokens: Tensor
    """float32 (V, D)."""
    ids: Tensor
    """int32 (B, S)."""
    puzzles: Tensor | None
    """float32 (N, E), E at most the prefix times D; the rest of the prefix is zero."""
    identifiers: Tensor
    """int32 (B,)."""


@dataclass(frozen=True)
class Anew:
    """Which sequences start from the initial states."""

    halted: Tensor
    """bool (B,)."""
    z_H: Tensor
    """(D,)."""
    z_L: Tensor


@dataclass(frozen=True)
class Sum:
    """Rows r that represent their norm, r / size, which is never written: readers divide.

    size = sqrt(sum of r's squares / D + eps) of each row.
    """

    r: Tensor
    """(B, L, D)."""
    squares: Tensor | None = None
    """float32 (B L, parts): the sum of r's squares in each part of a row; None: r is normed already, size is 1."""


@dataclass(frozen=True)
class Total:
    """A `Sum` and its addends, which are `size` times as large too: r represents the norm of r / size."""

    r: Tensor
    """(B, L, D)."""
    squares: Tensor | None
    """Of that sum alone, before the rest was added; None: size is 1."""


def pair_rows(source: Tensor, target: Tensor, block: int) -> None:
    """Copy (2N, K), one half after the other, into (2N, >= K), blocks of the halves alternating; casts."""
    rows, width = source.shape
    pairs = source.view(2, rows // 2 // block, block, width).transpose(0, 1)
    target.view(rows // 2 // block, 2, block, -1)[..., :width].copy_(pairs)


def unpair_rows(source: Tensor, target: Tensor, block: int) -> None:
    """The inverse of `pair_rows`."""
    rows, width = target.shape
    pairs = source.view(rows // 2 // block, 2, block, -1)[..., :width]
    target.view(2, rows // 2 // block, block, width).copy_(pairs.transpose(0, 1))


def split_columns(both: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(..., 2N) in alternating blocks -> its two halves (..., N)."""
    pairs = both.reshape(*both.shape[:-1], -1, 2, block)
    return pairs.select(-2, 0).flatten(-2), pairs.select(-2, 1).flatten(-2)


def join_columns(left: Tensor, right: Tensor, block: int) -> Tensor:
    """The inverse of `split_columns`."""
    blocks = [half.reshape(*half.shape[:-1], -1, block) for half in (left, right)]
    return torch.stack(blocks, dim=-2).flatten(-3)


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left.T @ right, summed and kept in float32."""
    if total.dtype == left.dtype:
        total.addmm_(left.T, right)
    else:
        torch.addmm(total, left.T, right, out_dtype=torch.float32, out=total)
