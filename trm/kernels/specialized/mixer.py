"""The token mixer's kernels for Hopper: the functions of trm/kernels/token_mixer.py, which other shapes take."""

from __future__ import annotations

from torch import Tensor

from trm.kernels import token_mixer
from trm.kernels.specialized import mixer_forward, mixer_input_grad, mixer_weight_grad

SPECIALIZED = True
"""Part of the name of a step that takes this module (trm/kernels/components.py)."""
REACH, WIDTH, INNER = 112, 512, 512
"""Longest sequence that the weight gradient sums; channels and inner units they ran at. The loops are unrolled for it:
counts of chunks or tiles that UNROLL does not divide would hang."""


def takes(x: Tensor, wd: Tensor) -> bool:
    """Whether the kernels here take x (B, L, D) and inner units as many as wd (N, 128) has."""
    return x.shape[1] <= REACH and x.shape[2] == WIDTH and len(wd) == INNER


def forward(x: Tensor, wgu: Tensor, wd: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x (B, L, D) -> y (B, L, D) and 1/rms over L, float32 (B, D)."""
    if not takes(x, wd):
        return token_mixer.forward(x, wgu, wd, eps)
    return mixer_forward.forward(x, wgu, wd, eps)


def input_grad(x: Tensor, y: Tensor, rstd: Tensor, dy: Tensor, wgu: Tensor, wd: Tensor, dx: Tensor) -> Tensor:
    """Write dx (B, L, D), the input's gradient; return dr (B, L, D), the gradient of the norm's input."""
    if not takes(x, wd):
        return token_mixer.input_grad(x, y, rstd, dy, wgu, wd, dx)
    return mixer_input_grad.input_grad(x, y, rstd, dy, wgu, wd, dx)


def weight_grad(x: Tensor, dr: Tensor, wgu: Tensor, wd: Tensor, dwgu: Tensor, dwd: Tensor, add: bool) -> None:
    """Write (or `add`) float32 partial sums dwgu (parts, 2N, 128), dwd (parts, N, 128); no atomics, a fixed order."""
    if takes(x, wd):
        mixer_weight_grad.weight_grad(x, dr, wgu, wd, dwgu, dwd, add)
    else:
        token_mixer.weight_grad(x, dr, wgu, wd, dwgu, dwd, add)
