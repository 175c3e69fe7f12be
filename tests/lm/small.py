"""The settings, states and batches of small trainings."""

from __future__ import annotations

from typing import Any

import torch

from lm.config import Arch, Data, LmConfig, Refine
from lm.train import Batch, RefiningStep, TrainState
from relay.torch import rng

VOCABULARY = 50


def small(**changes: Any) -> LmConfig:
    """Two blocks of width 16, rows of 8 tokens, 4 rows; keywords change any group or setting."""
    groups = {"arch": Arch(depth=2, width=16, heads=2, context=8), "refine": Refine(), "data": Data()}
    for name, group in groups.items():
        own = {key: changes.pop(key) for key in list(changes) if key in type(group).model_fields}
        groups[name] = type(group).model_validate({**group.model_dump(), **own})
    return LmConfig.model_validate({"task": "lm_tiny", "batch_size": 4, "threads": 1, **groups, **changes})


def batch_at(step: int, config: LmConfig | None = None, vocabulary: int = VOCABULARY) -> Batch:
    """A function of the step; some targets are not scored."""
    config = config or small()
    shape = (config.batch_size, config.arch.context + 1)
    tokens = rng.integers(0, step, 90, shape, 0, vocabulary)
    targets = tokens[:, 1:].clone()
    targets[:, ::5] = -1
    return Batch(tokens[:, :-1].contiguous(), targets)


def moved(config: LmConfig, seed: int = 7) -> TrainState:
    """A state in which no weight is zero, so that every gradient is alive."""
    state = TrainState(config, VOCABULARY)
    for index, value in enumerate(state.params.views.values()):
        value.add_(rng.normal(seed, index, 91, tuple(value.shape), 0.2))
    return state


def train(state: TrainState, until: int, step: RefiningStep | None = None) -> torch.Tensor:
    """Steps on `batch_at`; the last one's metrics."""
    metrics = torch.zeros(0)
    while state.step < until:
        metrics = (step or RefiningStep())(state, batch_at(state.step, state.config))
    return metrics
