"""Stablemax loss, halting loss, the step's metrics as sums on the device, and their means.

reference/trm.md 4.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from trm.act import Output
from trm.data.dataset import IGNORE

METRICS = ("count", "accuracy", "exact_accuracy", "q_halt_accuracy", "steps", "lm_loss", "q_halt_loss")
"""Sums over sequences that halted in this step and have labels; the two losses are sums over all sequences."""


def stablemax_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """float64 (B, S): -log(s(x_label) / sum_k s(x_k)), 0 where the label is IGNORE.

    s(x) = x + 1 for x >= 0, else 1 / (1 - x). logits (B, S, V) of any type are computed in float64.
    """
    x = logits.double()
    s = torch.where(x >= 0, x + 1, 1 / (1 - x.clamp(max=0)))
    scored = labels != IGNORE
    index = labels.masked_fill(~scored, 0).long()
    at_label = s.gather(-1, index[..., None]).squeeze(-1)
    return (s.sum(-1).log() - at_label.log()).masked_fill(~scored, 0)


def loss_and_metrics(output: Output) -> tuple[Tensor, Tensor]:
    """The step's total loss (float64, a sum over sequences) and its METRICS (float64 (7,), detached).

    total = sum over sequences of the mean token loss + 0.5 * halting loss. The caller divides by the batch size.
    """
    scored = output.labels != IGNORE
    divisor = scored.sum(-1).clamp(min=1)
    lm_loss = (stablemax_cross_entropy(output.logits, output.labels) / divisor[:, None]).sum()
    with torch.no_grad():
        right = (output.logits.argmax(-1) == output.labels) & scored
        exact = right.sum(-1) == scored.sum(-1)
    q_halt = output.q[:, 0]
    q_loss = F.binary_cross_entropy_with_logits(q_halt, exact.to(q_halt.dtype), reduction="sum")
    with torch.no_grad():
        counted = output.halted & scored.any(-1)
        rows = torch.stack(
            (
                torch.ones_like(q_halt, dtype=torch.float64),
                right.sum(-1).double() / divisor,
                exact.double(),
                ((q_halt >= 0) == exact).double(),
                output.steps.double(),
            )
        )
        sums = (rows * counted).sum(-1)
        metrics = torch.cat((sums, torch.stack((lm_loss.detach(), q_loss.detach().double()))))
    return lm_loss + 0.5 * q_loss, metrics


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
