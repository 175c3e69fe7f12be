"""Means of a step's metrics over some steps, summed on the device. Knows nothing of who reads them."""

from __future__ import annotations

import torch
from torch import Tensor

from trm.losses import METRICS


class Meter:
    """Sums of metrics on the device over some steps."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(len(METRICS), dtype=torch.float64, device=device)
        self.steps = 0

    def add(self, metrics: Tensor) -> None:
        """Count one step; does not wait for the device."""
        self.sums += metrics
        self.steps += 1

    def means(self, batch_size: int) -> dict[str, float]:
        """Losses a sequence and step, the others a sequence that halted; {} before the first step. Waits."""
        if not self.steps:
            return {}
        sums = dict(zip(METRICS, self.sums.tolist(), strict=True))
        count = sums.pop("count")
        losses = {name: sums.pop(name) / (batch_size * self.steps) for name in ("lm_loss", "q_halt_loss")}
        return losses | {name: value / count for name, value in sums.items() if count}
