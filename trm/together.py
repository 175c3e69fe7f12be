"""Trains one run with several processes: the first trains as if alone, the others do the same steps on their rows.

Every process holds the whole state, so the leader saves, compares and evaluates it by itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from relay.core.lease.signals import REASONS
from relay.core.workload import ProcessLost
from relay.torch.caches import INDUCTOR
from relay.torch.device import settle
from relay.torch.launch import followers
from relay.torch.peers import ANSWER_S, WORK, PeerLost, Peers, meet
from trm.choosing import by_kind, kind_of
from trm.config import TrainConfig
from trm.data.dataset import Batch
from trm.model import Sizes
from trm.train import EagerStep, Step, TrainState

CACHES = ("TRITON_CACHE_DIR", INDUCTOR)


class LeadingStep:
    """A step that the followers take too; they get a state whenever the leader's is new to them."""

    def __init__(self, step: Step, peers: Peers) -> None:
        self._step, self._peers = step, peers
        self._known: tuple[TrainState, int] | None = None
        self.name = step.name

    @property
    def parts(self) -> int:
        """Micro-batches of each process."""
        return self._step.parts

    @parts.setter
    def parts(self, value: int) -> None:
        self._step.parts = value

    def check(self) -> None:
        """Raises ProcessLost once a follower is gone, in the middle of a step."""
        try:
            self._peers.check()
        except PeerLost as lost:
            raise ProcessLost(str(lost), whole=False) from lost

    @property
    def atomic(self) -> bool:
        """Whether the state is as before if the exchange fails."""
        return self._step.atomic

    @property
    def groups(self) -> str:
        """How the batch is divided."""
        return self._step.groups

    @property
    def timings(self) -> Mapping[str, float]:
        """Times of the leader's own first step."""
        return self._step.timings

    def __call__(self, state: TrainState, batch: Batch) -> Tensor:
        """Advance the state by one step in place. Raises ProcessLost."""
        begun = False
        try:
            if self._known is None or self._known[0] is not state or self._known[1] != state.step:
                self._peers.answer_s = WORK.total_seconds()
                self._hand_out(state)
            self._peers.order({"do": "step"})
            self._peers.share(list(vars(batch).values()))
            begun = True
            metrics = self._step(state, batch)
        except PeerLost as lost:
            raise ProcessLost(str(lost), whole=not begun or self.atomic) from lost
        self._known, self._peers.answer_s = (state, state.step), ANSWER_S
        return metrics

    def _hand_out(self, state: TrainState) -> None:
        self._peers.order({
            "do": "load", "config": state.config.plain(), "sizes": vars(state.sizes), "step": state.step,
            "device": state.device.type,
            "kind": kind_of(self._step), "parts": self.parts,
            "caches": {name: os.environ[name] for name in CACHES if name in os.environ},
        })  # fmt: skip
        self._peers.share(list(state.tensors().values()))


def dismiss() -> bool:
    """Called before the leader ends: the followers end too, even if they were never needed.

    False if one is gone. What still waits for it may hang the end of this process.
    """
    mine = followers()
    try:
        if mine is None or meet.cache_info().currsize:
            peers = meet()
            peers.order({"do": "stop"})
            peers.close()
    except PeerLost:
        return False
    finally:
        if mine:
            mine.end()
    return True


def follow() -> None:
    """The loop of every process but the first, until the leader ends; only the leader obeys signals.

    Raises PeerLost if the leader ends without a word.
    """
    # a scheduler signals every process of a job, and so does a closing terminal
    for number in REASONS:
        signal.signal(number, signal.SIG_IGN)
    peers = meet()
    state: TrainState | None = None
    step: Step = EagerStep()
    while (order := peers.obey())["do"] != "stop":
        if order["do"] == "load":
            state, step = _taken_over(order, peers)
        else:
            assert state is not None, "a state comes first"
            batch = _room(state)
            peers.share(list(vars(batch).values()))
            step(state, batch)
    peers.close()


def _taken_over(order: Mapping[str, Any], peers: Peers) -> tuple[TrainState, Step]:
    """The leader's state and kind of step, as `_hand_out` sends them."""
    config, sizes = TrainConfig.model_validate(order["config"]), Sizes(**order["sizes"])
    settle(config.threads)
    os.environ.update(order["caches"])  # the leader's kernels serve all
    state = TrainState(config, sizes, peers.device if order["device"] == "cuda" else torch.device("cpu"))
    step = by_kind(order["kind"], order["parts"], peers)
    peers.share(list(state.tensors().values()))
    state.step = order["step"]
    return state, step


def _room(state: TrainState) -> Batch:
    """A batch to be filled."""
    carry = state.carry
    return Batch(*(torch.empty_like(t) for t in (carry.inputs, carry.labels, carry.puzzle_identifiers)))
