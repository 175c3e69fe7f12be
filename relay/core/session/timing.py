"""Measures where a session's time goes: phases of the start, phases of the session, stalls by checkpoints."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, get_args

from relay.core.clock import Runtime
from relay.core.ledger.sessionreport import PhaseName

# --- Phases of the start, from process start to the end of the first step -------------------------------------------

Phase = Literal["import", "data", "lease", "restore", "cache", "first_step"]
"""Interpreter, packages and device; data; acquiring the lease; loading the checkpoint; the rest of fetching compiled
code, if allowed; the first optimizer step with its compilation."""


@dataclass
class Startup:
    """Seconds of each phase, in the order of the marks."""

    since: float | None = None
    """Process start, later the last mark, on the session's monotonic clock; None disables measuring."""
    inside: Callable[[], Mapping[str, float]] = lambda: {}
    """Parts of the first step's time, as the workload reports them, e.g. compile and capture."""
    counts: Callable[[], Mapping[str, int]] = lambda: {}
    """Numbers of kernels loaded and compiled."""
    phases: dict[str, float] = field(default_factory=dict)
    waited_s: float = 0.0
    """Seconds in which another session held the lease; no phase has them."""

    def wait(self, seconds: float) -> None:
        """Leave out time in which another session held the lease."""
        self.waited_s += seconds
        if self.since is not None:
            self.since += seconds

    def mark(self, phase: Phase, now: float) -> None:
        """End the phase now. The times of a repeated phase (two waits for a lease) are added."""
        if self.since is not None:
            self.phases[phase] = self.phases.get(phase, 0.0) + now - self.since
            self.since = now

    @property
    def total_s(self) -> float:
        """Seconds from process start to the newest mark, without the wait for the lease."""
        return sum(self.phases.values())

    def document(self) -> dict[str, float]:
        """For relay.run/1: seconds by phase, including those inside the first step, and the counts."""
        every, trained = dict(self.phases), "first_step" in self.phases
        if trained:
            every.update(self.inside())
        seconds = {f"{phase}_s": round(spent, 3) for phase, spent in every.items()}
        return seconds | (dict(self.counts()) if trained else {})


# --- Phases of the whole session, which add up to its time ----------------------------------------------------------

ORDER: tuple[PhaseName, ...] = get_args(PhaseName)
STARTING = {"import": "import", "data": "prepare", "lease": "acquire", "restore": "restore", "cache": "cache"}
"""Phases of the start, and their names as phases of the whole session."""


@dataclass
class Spent:
    """Seconds that the session's own thread spends outside training. Phases do not nest, except inside `upload`."""

    runtime: Runtime
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def on(self, phase: str) -> Iterator[None]:
        """Add the time inside the block to `phase`, less the time counted for nested phases."""
        began, before = self.runtime.monotonic(), self.total_s
        try:
            yield
        finally:
            passed = self.runtime.monotonic() - began - (self.total_s - before)
            self.seconds[phase] = self.seconds.get(phase, 0.0) + max(0.0, passed)

    @property
    def total_s(self) -> float:
        """Sum over all phases so far."""
        return sum(self.seconds.values())


def phases(startup: Startup, spent: Mapping[str, float], train_s: float, wall_s: float) -> dict[str, float]:
    """Seconds by phase, in order; they add up to `wall_s`. Unmeasured time is `other`.

    `train_s` includes the first step with its compiling and capturing.
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
    """The phases in chronological order."""
    return [(name, found[name]) for name in ORDER if name in found]


# --- Stalls by checkpoints, from progress reports -------------------------------------------------------------------

SAMPLES = 20


@dataclass
class Stalls:
    """The time between two reports with one commit, less the time of as many steps without one.

    It thus covers everything that delays the steps until the next report: the copy, the next step, saving and sending.
    A reported step is done, so an asynchronous device does not distort it.
    """

    seconds: list[float] = field(default_factory=list)
    """One value for each checkpoint that could be compared with ordinary steps."""
    _usual: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    """Seconds per step between reports without a commit."""
    _last: tuple[float, int] | None = None
    _commits: int = 0
    _excused_s: float = 0.0

    def report(self, now: float, step: int) -> None:
        """`step` is done at `now` (seconds, monotonic)."""
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
        """A snapshot follows."""
        self._commits += 1

    def excuse(self, seconds: float) -> None:
        """Exclude seconds between reports that a checkpoint did not cause: an evaluation."""
        self._excused_s += seconds

    @property
    def median_s(self) -> float | None:
        """None before the first."""
        return median(self.seconds) if self.seconds else None

    @property
    def most_s(self) -> float | None:
        """None before the first."""
        return max(self.seconds, default=None)
