"""Where a session's time went, from the start of its process to its end, in phases that add up; reads no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

from relay.core.clock import Runtime
from relay.core.ledger.sessionreport import PhaseName
from relay.core.session.startup import Startup

ORDER: tuple[PhaseName, ...] = get_args(PhaseName)
STARTING = {"import": "import", "data": "prepare", "lease": "acquire", "restore": "restore", "cache": "cache"}
"""Names of the start's phases that are phases of the whole session."""


@dataclass
class Spent:
    """Seconds of the session's own thread in what it does beside training; one never runs inside another, but for
    what `upload` waits beside."""

    runtime: Runtime
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """The time inside belongs to `what`, less what was counted elsewhere meanwhile."""
        began, before = self.runtime.monotonic(), self.total_s
        try:
            yield
        finally:
            passed = self.runtime.monotonic() - began - (self.total_s - before)
            self.seconds[what] = self.seconds.get(what, 0.0) + max(0.0, passed)

    @property
    def total_s(self) -> float:
        """Of everything counted so far."""
        return sum(self.seconds.values())


def phases(startup: Startup, spent: Mapping[str, float], train_s: float, wall_s: float) -> dict[str, float]:
    """Seconds by phase, in order; they add up to `wall_s`. What nobody measured is `other`.

    `train_s` holds the first step, and with it what that spent on compiling and capturing.
    """
    found = {name: startup.phases[phase] for phase, name in STARTING.items() if phase in startup.phases}
    inside = startup.inside() if "first_step" in startup.phases else {}
    for name in ("compile", "capture"):
        if inside.get(name, 0.0) > 0:
            found[name] = min(inside[name], max(0.0, train_s))
            train_s -= found[name]
    found |= {"train": max(0.0, train_s), **spent}
    found["other"] = max(0.0, wall_s - sum(found.values()))
    return {name: seconds for name, seconds in in_order(found) if seconds > 0}


def in_order(found: Mapping[Any, float]) -> list[tuple[str, float]]:
    """Phases as they follow each other."""
    return [(name, found[name]) for name in ORDER if name in found]
