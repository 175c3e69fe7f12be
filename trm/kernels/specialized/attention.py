"""Rotary attention for Hopper: the functions of trm/kernels/attention.py, which other shapes take."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trm.kernels import attention
from trm.kernels.layout import PAD, Total
from trm.kernels.specialized import long_forward, long_keys, long_queries, short_backward, short_forward
from trm.kernels.specialized import out as out_projection
from trm.kernels.specialized import qkv as projection

SPECIALIZED = True
"""Part of the name of a step that takes this module (trm/kernels/components.py)."""
WIDTH, HEAD = 512, 64
"""The widths they ran at; token rows of the first fit into shared memory."""


def takes(width: int, heads: int) -> bool:
    """Whether so many channels in so many heads go to the kernels here, whose projection turns queries and keys."""
    return (width, width // heads) == (WIDTH, HEAD)


def project(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
    """x (B, L, D), w (3 D, D) -> the input of `forward`, (B, L, 3 D)."""
    if takes(x.shape[2], heads):
        return projection.project(x, w, cos, sin)
    return attention.project(x, w, cos, sin, heads)


def project_total(
    total: Total, w: Tensor, cos: Tensor, sin: Tensor, heads: int, eps: float
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """(`project` of the norm, 1 / the rows' sizes, or None if the rows are overwritten by their norm)."""
    if takes(total.r.shape[2], heads) and total.squares is not None:
        return projection.project_total(total.r, total.squares, w, cos, sin, eps)
    return attention.project_total(total, w, cos, sin, heads, eps)


def forward(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The result of `project` -> mixed values (B, L, D) and the input of `backward`. May leave q and k turned."""
    if takes(qkv.shape[2] // 3, heads):
        mixed, sums = (short_forward if qkv.shape[1] <= PAD else long_forward).forward(qkv, heads)
        return mixed, (sums,)
    return attention.forward(qkv, cos, sin, heads)


def pack_out(w: Tensor, target: Tensor) -> None:
    """The output projection's weight (D, D) as `add` takes it; casts."""
    if w.shape == (WIDTH, WIDTH):
        out_projection.spread(w, target)
    else:
        attention.pack_out(w, target)


def add(x: Tensor, mixed: Tensor, w: Tensor, out: Tensor, rstd: Tensor | None = None) -> Tensor:
    """out = x + mixed @ w.T, all (rows, D), out may be x -> the sum of its squares a row, float32, in parts of it."""
    if w.shape == (WIDTH, WIDTH):
        return out_projection.add(x, mixed, w, out, rstd)
    return attention.add(x, mixed, w, out, rstd)


def backward(
    qkv: Tensor, cos: Tensor, sin: Tensor, mixed: Tensor, kept: Sequence[Tensor], dout: Tensor, heads: int
) -> Tensor:  # fmt: skip
    """Gradient of the projection before rotation, given the results of `forward` and that of the mixed values."""
    if not takes(qkv.shape[2] // 3, heads):
        return attention.backward(qkv, cos, sin, mixed, kept, dout, heads)
    if qkv.shape[1] <= PAD:
        return short_backward.backward(qkv, cos, sin, mixed, kept[0], dout, heads)
    dqkv, dots = torch.empty_like(qkv), torch.empty_like(kept[0])
    long_queries.write(dqkv, dots, qkv, cos, sin, mixed, kept[0], dout, heads)
    long_keys.write(dqkv, dots, qkv, cos, sin, kept[0], dout, heads)
    return dqkv
