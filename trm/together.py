"""A TRM's training with several processes: what a follower makes from the leader's order (relay/torch/together.py)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from relay.torch import together
from relay.torch.caches import INDUCTOR
from relay.torch.device import settle
from relay.torch.peers import Peers
from relay.torch.together import Follower
from trm.choosing import by_kind, kind_of
from trm.config import TrainConfig
from trm.data.dataset import Batch
from trm.model import Sizes
from trm.train import Step, TrainState

MODEL = "trm"
CACHES = ("TRITON_CACHE_DIR", INDUCTOR)


class LeadingStep(together.LeadingStep[TrainState, Batch]):
    """The leader's step."""

    model = MODEL

    def described(self, state: TrainState, step: Step) -> Mapping[str, Any]:
        """Configuration, sizes, device, the kind of step, and where compiled kernels are kept."""
        return {
            "config": state.config.plain(),
            "sizes": vars(state.sizes),
            "device": state.device.type,
            "kind": kind_of(step),
            "caches": {name: os.environ[name] for name in CACHES if name in os.environ},
        }


def taken_over(order: Mapping[str, Any], peers: Peers) -> Follower:
    """The leader's state and kind of step."""
    config, sizes = TrainConfig.model_validate(order["config"]), Sizes(**order["sizes"])
    settle(config.threads)
    os.environ.update(order["caches"])  # the leader's kernels serve all
    state = TrainState(config, sizes, peers.device if order["device"] == "cuda" else torch.device("cpu"))
    step = by_kind(order["kind"], order["parts"], peers)
    carry = state.carry
    room = Batch(*(torch.empty_like(t) for t in (carry.inputs, carry.labels, carry.puzzle_identifiers)))
    return state, step, room
