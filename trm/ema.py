"""Exponential moving average of weights, in place; knows nothing of what they mean."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def ema_(shadow: Tensor, p: Tensor, rate: float) -> None:
    """shadow <- rate * shadow + (1 - rate) * p: no warm-up, no bias correction (reference/trm.md 6)."""
    shadow.lerp_(p, 1 - rate)
