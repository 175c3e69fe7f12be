"""What a session does at this moment, as its display was told; draws nothing and decides nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from relay.core.workload import Progress as Step


class Pace:
    """Steps per second since the session's first step."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._first: tuple[int, float] | None = None
        self.step = 0
        self.rate = 0.0
        """0 until two steps were seen."""

    def now(self) -> float:
        """The time now."""
        return self._monotonic()

    def add(self, step: int) -> float:
        """A step is done; the time now."""
        now = self._monotonic()
        self._first = self._first or (step, now)
        steps, seconds = step - self._first[0], now - self._first[1]
        self.step, self.rate = step, steps / seconds if steps > 0 and seconds > 0 else 0.0
        return now


class AtWork:
    """Told from any thread by single assignments, read by whoever draws. Times are monotonic seconds."""

    def __init__(
        self, target: int, monotonic: Callable[[], float], short: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`short`: the metrics to show, and what they are called (`Measures.short`)."""
        self.target, self.pace, self.short = target, Pace(monotonic), short
        self.metrics: Mapping[str, float] = {}
        self.stepped_at = -math.inf
        self.doing: tuple[str, float] = ("", 0.0)
        """What is done while no step is made, and since when; empty: it trains."""
        self.transfer = ""
        """How far a long transfer is; empty without one."""
        self.safe: tuple[int, float] | None = None
        """The newest step known to be durable, and since when."""
        self.deadline = math.inf
        """The session is over by then."""

    @property
    def stepped(self) -> bool:
        """Whether this session has made a step."""
        return self.stepped_at > -math.inf

    def step(self, progress: Step) -> None:
        """A training step is done."""
        self.stepped_at, self.metrics = self.pace.add(progress.step), progress.metrics

    def phase(self, text: str) -> None:
        """Another thing is done from now on; one with the same words before a colon goes on, further along."""
        now, (before, since) = self.pace.now(), self.doing
        goes_on = text.partition(":")[0] == before.partition(":")[0]
        self.doing = text, since if goes_on else now

    def committed(self, step: int) -> None:
        """A step is durable, so it was made: not every step is told when it is."""
        if self.stepped and step > self.pace.step:
            self.pace.add(step)
        self.safe = step, self.pace.now()
