"""Chooses how training steps are computed on a device: by which code, and in how many parts of the batch.

Knows no files, no data and no relay.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from relay.torch.launch import launched
from relay.torch.peers import Peers, meet
from trm.config import TrainConfig
from trm.cost import Method, fit, free_bytes
from trm.kernels.fast_step import choose
from trm.layers import emulated_bf16, slow_bf16
from trm.model import Sizes
from trm.presets import TaskError
from trm.together import LeadingStep
from trm.train import EagerStep, Step


@dataclass(frozen=True)
class Strategy:
    """A step, and what people should know of it."""

    step: Step
    remarks: tuple[str, ...] = ()
    """Lines to show before training; none where all is as usual."""


def strategy(device: torch.device, config: TrainConfig, sizes: Sizes) -> Strategy:
    """The fastest step there is here, in the fewest parts that fit into free memory. Raises TaskError if none do."""
    peers = meet() if launched() > 1 else None
    step = choose(device, config.arch, sizes, peers)
    method: Method = "eager" if isinstance(step, EagerStep) else "fused"
    processes = peers.size if peers else 1
    found = fit(config, sizes, method, free_bytes(device), slow_bf16(device), processes)
    step.parts = found.parts
    remarks = (_old_card(device, config), _together(peers, config), found.remark)
    return Strategy(LeadingStep(step, peers) if peers else step, tuple(remark for remark in remarks if remark))


def _together(peers: Peers | None, config: TrainConfig) -> str | None:
    """How the batch is shared. Raises TaskError if it cannot be shared evenly."""
    if peers is None:
        return None
    try:
        mine = peers.rows(config.batch_size)
    except ValueError as error:
        raise TaskError(str(error)) from error
    each = mine.stop - mine.start
    return (
        f"TOGETHER: {peers.size} processes share each batch of {config.batch_size}, {each} rows each. "
        "It is the same function; beside sessions of another number the link is not bit-exact."
    )


def _old_card(device: torch.device, config: TrainConfig) -> str | None:
    """What people should know before a GPU without bfloat16 takes their time."""
    if config.arch.forward_dtype != "bfloat16" or not emulated_bf16(device):
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return (
        f"OLD CARD: {torch.cuda.get_device_name(device)} (compute capability {major}.{minor}, below 8.0) has no "
        "bfloat16 products. They are computed in float32: much slower than on a newer card, and links with sessions "
        "on other cards are not bit-exact."
    )
