"""A language model's training with several processes: what a follower makes from the leader's order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from lm.config import LmConfig
from lm.train import Batch, RefiningStep, Step, TrainState
from relay.torch import together
from relay.torch.device import settle
from relay.torch.peers import Peers
from relay.torch.together import Follower

MODEL = "lm"


class LeadingStep(together.LeadingStep[TrainState, Batch]):
    """The leader's step."""

    model = MODEL

    def described(self, state: TrainState, step: Step) -> Mapping[str, Any]:
        """Configuration, vocabulary, and the kind of step."""
        kernels = os.environ.get("TRITON_CACHE_DIR")
        return {"config": state.config.plain(), "vocabulary": state.vocab_size, "name": step.name, "kernels": kernels}


def taken_over(order: Mapping[str, Any], peers: Peers) -> Follower:
    """The leader's state and kind of step."""
    config = LmConfig.model_validate(order["config"])
    settle(config.threads)
    if order["kernels"]:
        os.environ["TRITON_CACHE_DIR"] = order["kernels"]  # the leader's kernels serve all
    state = TrainState(config, order["vocabulary"], peers.device)
    step = RefiningStep(order["name"], order["parts"], peers)
    shape = config.batch_size, config.arch.context
    room = Batch(*(torch.zeros(shape, dtype=torch.int64, device=peers.device) for _ in range(2)))
    return state, step, room
