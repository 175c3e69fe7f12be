"""Adam-atan2 on a flat buffer, sign-SGD on rows of a table, the average of weights, the learning rate.

reference/trm.md 5 and 6. All updates are in place.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trm.config import TrainConfig


@torch.no_grad()
def adam_atan2_(
    p: Tensor, grad: Tensor, m: Tensor, v: Tensor, t: int, lr: float, betas: tuple[float, float], weight_decay: float
) -> None:
    """Update p, m, v (float32, any one shape) in place with the t-th gradient (t = 1 is the first).

    Decay first; the first moment's bias correction stays outside the arc tangent, so the first step is
    0.9967 * lr * sign(grad) with the default betas. The order of roundings is the reference's: on the CPU that made
    tests/data/trm_parity the results are the same bits.
    """
    beta1, beta2 = betas
    p.mul_(1 - lr * weight_decay)
    m.lerp_(grad, 1 - beta1)
    v.lerp_(grad.square(), 1 - beta2)
    denominator = v.sqrt().div_(math.sqrt(1 - beta2**t))
    p.add_(torch.atan2(m, denominator, out=denominator), alpha=-lr / (1 - beta1**t))


@torch.no_grad()
def sign_sgd_(table: Tensor, ids: Tensor, grads: Tensor, lr: float | Tensor, weight_decay: float) -> Tensor:
    """w_u <- w_u * (1 - lr * wd) - lr * sign(G_u), for each id u, where G_u sums the gradients of u's rows.

    Returns the signs, float32 (B, D), which a journal keeps for a replay (trm/journal.py).

    table: float32 (N, D), in place. ids: int (B,), below N. grads: float32 (B, D).
    Static shapes and no atomics: a 0/1 matrix sums the gradients, each id's first row stands for all, and equal
    rows are written with equal values.
    """
    same = ids[:, None] == ids[None, :]
    first = same.to(torch.uint8).argmax(dim=1)
    total = (same.to(grads.dtype) @ grads)[first]
    index = ids.long()
    sign = total.sign()
    table[index] = table[index] * (1 - lr * weight_decay) - lr * sign
    return sign


@torch.no_grad()
def ema_(shadow: Tensor, p: Tensor, rate: float) -> None:
    """shadow <- rate * shadow + (1 - rate) * p: no warm-up, no bias correction (reference/trm.md 6)."""
    shadow.lerp_(p, 1 - rate)


def lr_scale(config: TrainConfig, step: int) -> float:
    """The factor of both learning rates in the update that ends `step` (1 is the first one).

    Linear warm-up over lr_warmup_steps, then a cosine from 1 to lr_min_ratio at total_steps (reference/trm.md 5.3).
    """
    warmup, floor = config.lr_warmup_steps, config.lr_min_ratio
    if step < warmup:
        return step / warmup
    if floor == 1 or config.total_steps is None:
        return 1.0
    progress = min(1.0, (step - warmup) / max(1, config.total_steps - warmup))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))
