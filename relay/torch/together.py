"""Trains one run with several processes: the first trains as if alone, the others do the same steps on their rows.

Every process holds the whole state, so the leader saves, compares and evaluates it by itself. A model says in its own
orders how a follower takes over its state.
"""

from __future__ import annotations

import signal
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic

from torch import Tensor

from relay.core.lease.signals import REASONS
from relay.core.workload import ProcessLost
from relay.torch.launch import followers
from relay.torch.peers import ANSWER_S, WORK, PeerLost, Peers, meet
from relay.torch.steps import Batch, State, Step


class LeadingStep(Generic[State, Batch]):
    """A step that the followers take too; they get a state whenever the leader's is new to them."""

    model: str
    """The model's name in the order."""

    def __init__(self, step: Step[State, Batch], peers: Peers) -> None:
        self._step, self._peers = step, peers
        self._known: tuple[State, int] | None = None
        self.name = step.name

    @abstractmethod
    def described(self, state: State, step: Step[State, Batch]) -> Mapping[str, Any]:
        """All that a follower needs to make an equal state and an equal step, as plain JSON values."""

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

    def __call__(self, state: State, batch: Batch) -> Tensor:
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

    def _hand_out(self, state: State) -> None:
        about = self.described(state, self._step)
        self._peers.order({"do": "load", "model": self.model, "step": state.step, "parts": self.parts, **about})
        self._peers.share(list(state.tensors().values()))


Follower = tuple[Any, Callable[[Any, Any], Tensor], Any]
"""A state with untouched tensors, its step, and a batch to be filled."""


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


def follow(take_over: Callable[[Mapping[str, Any], Peers], Follower]) -> None:
    """The loop of every process but the first, until the leader ends; only the leader obeys signals.

    take_over: makes what an order of the leader's model describes. Raises PeerLost if the leader ends without a word.
    """
    # a scheduler signals every process of a job, and so does a closing terminal
    for number in REASONS:
        signal.signal(number, signal.SIG_IGN)
    peers = meet()
    made: Follower | None = None
    while (order := peers.obey())["do"] != "stop":
        if order["do"] == "load":
            made = take_over(order, peers)
            peers.share(list(made[0].tensors().values()))
            made[0].step = order["step"]
        else:
            assert made is not None, "a state comes first"
            state, step, batch = made
            peers.share(list(vars(batch).values()))
            step(state, batch)
    peers.close()
