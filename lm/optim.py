"""Muon for the blocks' matrices, AdamW for embedding and head, and their rates. All updates are in place.

Muon moves a matrix along its averaged gradient with all singular values made similar: five Newton-Schulz steps bring
them between 0.5 and 1.5, not to 1, which is enough.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lm.config import LmConfig

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5
_SMALLEST_NORM = 1e-7
_BETAS, _EPSILON = (0.8, 0.95), 1e-10
_MOMENTUM, _MOMENTUM_STEPS = (0.85, 0.95), 300
"""Muon's momentum rises linearly over these steps."""
_REFERENCE_WIDTH = 768
"""At this width the rates of embedding and head are as given."""


@torch.no_grad()
def orthogonal(gradients: Tensor, dtype: torch.dtype) -> Tensor:
    """(n, rows, columns) -> the same with singular values near 1, computed in `dtype`."""
    tall = gradients.shape[-2] > gradients.shape[-1]
    x = (gradients.mT if tall else gradients).to(dtype)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + _SMALLEST_NORM)
    a, b, c = _COEFFICIENTS
    for _ in range(_ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


@torch.no_grad()
def muon_(w: Tensor, grad: Tensor, m: Tensor, lr: float, momentum: float, dtype: torch.dtype) -> None:
    """Update stacks of matrices w and m (float32 (n, rows, columns)) with Nesterov momentum."""
    m.lerp_(grad, 1 - momentum)
    step = orthogonal(grad.lerp(m, momentum), dtype)
    rows, columns = w.shape[-2:]
    w.add_(step.to(w.dtype), alpha=-lr * math.sqrt(max(1.0, rows / columns)))


@torch.no_grad()
def adamw_(w: Tensor, grad: Tensor, m: Tensor, v: Tensor, t: int, lr: float) -> None:
    """Update w, m, v (float32) with the t-th gradient, from 1; no weight decay."""
    beta1, beta2 = _BETAS
    m.lerp_(grad, 1 - beta1)
    v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    denominator = v.sqrt().div_(math.sqrt(1 - beta2**t)).add_(_EPSILON)
    w.addcdiv_(m, denominator, value=-lr / (1 - beta1**t))


def momentum_at(step: int) -> float:
    """Muon's momentum in the update that ends `step` (from 1)."""
    low, high = _MOMENTUM
    return low + (high - low) * min((step - 1) / _MOMENTUM_STEPS, 1.0)


def width_scale(width: int) -> float:
    """The factor of the rates of embedding and head."""
    return math.sqrt(_REFERENCE_WIDTH / width)


def lr_scale(config: LmConfig, step: int) -> float:
    """The factor of all rates in the update that ends `step`: a rise, a constant part, a fall to 0 at the end."""
    rise = min(1.0, step / config.lr_warmup_steps) if config.lr_warmup_steps else 1.0
    if not config.decay_share or config.total_steps is None:
        return rise
    left = (config.total_steps - step + 1) / (config.decay_share * config.total_steps)
    return min(rise, max(0.0, min(1.0, left)))
