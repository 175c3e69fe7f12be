"""How long training stands still for checkpoints, as its own progress reports show it; reads no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, get_args

from relay.core.clock import Runtime
from relay.core.ledger.sessionreport import PhaseName

# --- How a session's start divides up, from the start of its process to the end of its first step -------------------

Phase = Literal["import", "data", "lease", "restore", "cache", "first_step"]
"""Interpreter, packages and device; data; acquiring; checkpoint; what is left of fetching compiled code, where that
is allowed; the first optimizer step with what it compiles."""


@dataclass
class Startup:
    """Seconds a phase, in the order in which they were marked."""

    since: float | None = None
    """When the process started, later the last mark, on the session's monotonic clock; None: nothing is measured."""
    inside: Callable[[], Mapping[str, float]] = lambda: {}
    """What the first step says of its own time, e.g. compile and capture."""
    counts: Callable[[], Mapping[str, int]] = lambda: {}
    """Compiled code that was found, and that had to be made."""
    phases: dict[str, float] = field(default_factory=dict)

    def mark(self, phase: Phase, now: float) -> None:
        """The phase ends now. One that comes again (a lease waited for twice) is added up."""
        if self.since is not None:
            self.phases[phase] = self.phases.get(phase, 0.0) + now - self.since
            self.since = now

    @property
    def total_s(self) -> float:
        """From the start of the process to the newest mark."""
        return sum(self.phases.values())

    def document(self) -> dict[str, float]:
        """For relay.run/1: seconds by phase, those inside the first step too, and the counts."""
        every, trained = dict(self.phases), "first_step" in self.phases
        if trained:
            every.update(self.inside())
        seconds = {f"{phase}_s": round(spent, 3) for phase, spent in every.items()}
        return seconds | (dict(self.counts()) if trained else {})


# --- Where a session's time went, from the start of its process to its end, in phases that add up -------------------

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


# --- How long training stands still for checkpoints, as its own progress reports show it ----------------------------

SAMPLES = 20


@dataclass
class Stalls:
    """The time between two reports with a commit between them, less that of as many steps without one.

    So it holds whatever delays the steps until the next report: the copy, the step after, saving and sending beside it.
    A report's step is done, so it does not matter that a device lags behind.
    """

    seconds: list[float] = field(default_factory=list)
    """One a checkpoint, where there was something to compare it with."""
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    """Seconds a step between reports without a commit."""
    _last: tuple[float, int] | None = None
    _commits: int = 0
    _excused_s: float = 0.0

    def report(self, now: float, step: int) -> None:
        """`step` is done `now` (seconds, monotonic)."""
        last, self._last = self._last, (now, step)
        commits, excused_s, self._commits, self._excused_s = self._commits, self._excused_s, 0, 0.0
        if last is None or step <= last[1]:
            return
        spent, steps = now - last[0] - excused_s, step - last[1]
        if commits == 0:
            self._usual.append(spent / steps)
        elif commits == 1 and self._usual:
            self.seconds.append(max(0.0, spent - steps * median(self._usual)))

    def commit(self) -> None:
        """A snapshot is about to be taken."""
        self._commits += 1

    def excuse(self, seconds: float) -> None:
        """What came between reports and is no matter of checkpoints: an evaluation."""
        self._excused_s += seconds

    @property
    def median_s(self) -> float | None:
        """None before the first."""
        return median(self.seconds) if self.seconds else None

    @property
    def most_s(self) -> float | None:
        """None before the first."""
        return max(self.seconds, default=None)
