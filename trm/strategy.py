"""Chooses how training steps are computed on a device: by which code, and in how many parts of the batch.

Knows no files, no data and no relay.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trm.config import TrainConfig
from trm.kernels.fast_step import choose
from trm.layers import slow_bf16
from trm.memory import Method, fit, free_bytes
from trm.model import Sizes
from trm.train import EagerStep, Step


@dataclass(frozen=True)
class Strategy:
    """A step, and what people should know of it."""

    step: Step
    remarks: tuple[str, ...] = ()
    """Lines to show before training; none where all is as usual."""


def strategy(device: torch.device, config: TrainConfig, sizes: Sizes) -> Strategy:
    """The fastest step there is here, in the fewest parts that fit into free memory. Raises TaskError if none do."""
    step = choose(device, config.arch, sizes)
    method: Method = "eager" if isinstance(step, EagerStep) else "fused"
    found = fit(config, sizes, method, free_bytes(device), slow_bf16(device))
    step.parts = found.parts
    return Strategy(step, (found.remark,) if found.remark else ())
