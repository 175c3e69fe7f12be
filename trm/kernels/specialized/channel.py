"""The channel MLP's kernels for Hopper: the functions of trm/kernels/channel_mlp.py, which other widths take."""

from __future__ import annotations

from torch import Tensor

from trm.kernels import channel_mlp
from trm.kernels.specialized import gate_up as up
from trm.kernels.specialized import hidden_grad as down
from trm.kernels.specialized.tiles import programs

SPECIALIZED = True
"""Part of the name of a step that takes this module (trm/kernels/components.py)."""
WIDTH, BLOCK, UNITS = 512, 256, 128
"""The width they ran at, whose token rows fit into shared memory, and weights into registers; weight rows of two tiles,
one for each group of warps; hidden units of a program."""


def gate_up(x: Tensor, w: Tensor, keep: bool, squares: Tensor | None = None, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """(hidden (rows, N), products (rows, 2N) in paired order, or hidden again unless `keep`)."""
    if x.shape[1] != WIDTH or len(w) % BLOCK:
        return channel_mlp.gate_up(x, w, keep, squares, eps)
    return up.gate_up(x, w, keep, squares, eps)


def hidden_grad(dr: Tensor, wd: Tensor, gu: Tensor) -> Tensor:
    """dgu (rows, 2N), paired, from dr (rows, D), wd (D, N) and the kept products."""
    width, inner = wd.shape
    if width != WIDTH or inner % UNITS or inner // UNITS > programs(dr.device):
        return channel_mlp.hidden_grad(dr, wd, gu)
    return down.hidden_grad(dr, wd, gu)
