"""The learning rate as a function of the step; knows nothing of optimizers."""

from __future__ import annotations

import math

from trm.config import TrainConfig


def lr_scale(config: TrainConfig, step: int) -> float:
    """What both learning rates are multiplied by in the update that ends `step` (1 is the first one).

    Linear warm-up over lr_warmup_steps, then a cosine from 1 to lr_min_ratio at total_steps (reference/trm.md 5.3).
    """
    warmup, floor = config.lr_warmup_steps, config.lr_min_ratio
    if step < warmup:
        return step / warmup
    if floor == 1 or config.total_steps is None:
        return 1.0
    progress = min(1.0, (step - warmup) / max(1, config.total_steps - warmup))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))
