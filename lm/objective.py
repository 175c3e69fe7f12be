"""The objective over refinement steps, and the weight of each step's loss in its gradient.

L_i is the mean cross-entropy after step i of N (from 0), w_i = b^i / sum of b^j. With a reward s the objective is
[sum of w_i L_i - s * sum of (L_(i-1) - L_i) / L_(i-1)] / N, where the earlier loss is a constant. So a reward is a
further weight s / L_(i-1) on each later step: it grows as losses fall. With `last` only the last loss counts, whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lm.config import LAST, Refine

_SMALLEST_LOSS = 1e-8


@dataclass(frozen=True)
class Objective:
    """One run's objective."""

    weights: tuple[float, ...]
    """w_i / N, or 1 for the last step alone."""
    reward: float
    """s / N."""

    @classmethod
    def of(cls, refine: Refine) -> Objective:
        """By the settings."""
        steps = refine.steps
        if refine.weight_base == LAST:
            return cls((*[0.0] * (steps - 1), 1.0), refine.reward / steps)
        powers = [float(refine.weight_base) ** i for i in range(steps)]
        return cls(tuple(power / sum(powers) / steps for power in powers), refine.reward / steps)

    def counts(self, step: int) -> bool:
        """Whether the loss after this step (from 0) has a weight."""
        return self.weights[step] > 0 or (self.reward > 0 and step > 0)

    def needs_losses(self) -> bool:
        """Whether weights depend on the losses of the whole batch."""
        return self.reward > 0 and len(self.weights) > 1

    def weight(self, step: int, before: Tensor | None) -> Tensor:
        """Derivative of the objective by the loss after `step`; float64. before: the loss after the step before."""
        own = torch.tensor(self.weights[step], dtype=torch.float64)
        if step == 0 or before is None or not self.reward:
            return own
        return own.to(before.device) + self.reward / (before.detach().double() + _SMALLEST_LOSS)

    def value(self, losses: Tensor) -> Tensor:
        """The objective of losses (N,), float64. It may be negative."""
        losses = losses.detach().double()
        before, after = losses[:-1], losses[1:]
        gained = ((before - after) / (before + _SMALLEST_LOSS)).sum()
        return (
            losses * torch.tensor(self.weights, dtype=torch.float64, device=losses.device)
        ).sum() - self.reward * gained
