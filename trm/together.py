"""A TRM's training with several processes: what a follower makes from the leader's order (relay/torch/together.py)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from relay.torch import together
from relay.torch.device import settle
from relay.torch.peers import Peers
from relay.torch.together import Follower
from trm.config import TrainConfig
from trm.data.dataset import Batch
from trm.kernels.fast_step import FastStep
from trm.model import Sizes
from trm.train import EagerStep, Step, TrainState

MODEL = "trm"


class LeadingStep(together.LeadingStep[TrainState, Batch]):
    """The leader's step."""

    model = MODEL

    def described(self, state: TrainState, step: Step) -> Mapping[str, Any]:
        """Configuration, sizes, and the kind of step."""
        return {
            "config": state.config.plain(),
            "sizes": vars(state.sizes),
            "fused": isinstance(step, FastStep),
            "kernels": os.environ.get("TRITON_CACHE_DIR"),
        }


def taken_over(order: Mapping[str, Any], peers: Peers) -> Follower:
    """The leader's state and kind of step."""
    config, sizes = TrainConfig.model_validate(order["config"]), Sizes(**order["sizes"])
    settle(config.threads)
    if order["kernels"]:
        os.environ["TRITON_CACHE_DIR"] = order["kernels"]  # the leader's kernels serve all
    state = TrainState(config, sizes, peers.device)
    step = (FastStep if order["fused"] else EagerStep)(parts=order["parts"], peers=peers)
    carry = state.carry
    room = Batch(*(torch.empty_like(t) for t in (carry.inputs, carry.labels, carry.puzzle_identifiers)))
    return state, step, room
