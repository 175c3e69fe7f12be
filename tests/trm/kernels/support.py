"""Float64 truth and the error measure of the kernel tests."""

from __future__ import annotations

import torch
from torch import Tensor

CLOSE = 1e-6
"""Relative error of float32 arithmetic against float64."""


def error(got: Tensor, truth: Tensor) -> float:
    """‖got - truth‖ / ‖truth‖; nan if anything is nan."""
    got, truth = got.double(), truth.double()
    return float((got - truth).norm() / truth.norm())


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """float32 normals."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def silu_pair(both: Tensor) -> Tensor:
    """silu(first half) * second half of the last axis."""
    gate, up = both.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def rms(x: Tensor, eps: float, axis: int = -1) -> Tensor:
    """The norm, in x's own precision."""
    return x * (x.square().mean(axis, keepdim=True) + eps).rsqrt()
