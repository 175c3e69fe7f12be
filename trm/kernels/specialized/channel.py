"""The channel MLP's kernels for Hopper: the functions of trm/kernels/channel_mlp.py, which other widths take.

The hidden gradient is the one there: waiting for memory, it gained nothing from loading warps.
"""

from __future__ import annotations

from torch import Tensor

from trm.kernels import channel_mlp, norm
from trm.kernels.channel_mlp import hidden_grad
from trm.kernels.specialized import gate_up as up

__all__ = ["SPECIALIZED", "gate_up", "hidden_grad", "normed_gate_up"]

SPECIALIZED = True
"""Told in the name of a step that takes this module (trm/kernels/parts.py)."""
WIDTH, BLOCK = 512, 256
"""The width it ran at, whose token rows fit into shared memory; weight rows of a tile."""


def gate_up(x: Tensor, w: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    """(hidden (rows, N), products (rows, 2N) in paired order, or hidden again unless `keep`)."""
    if x.shape[1] != WIDTH or len(w) % BLOCK:
        return channel_mlp.gate_up(x, w, keep)
    return up.gate_up(x, w, keep)


def normed_gate_up(r: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(hidden (rows, N), y (rows, D)) of y = rms(r)."""
    y, _, _ = norm.forward(r, None, eps)
    return gate_up(y, w, False)[0], y
