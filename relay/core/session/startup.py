"""How a session's start divides up, from the start of its process to the end of its first step; reads no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Phase = Literal["import", "data", "lease", "restore", "cache", "first_step"]
"""Interpreter, packages and device; puzzles; acquiring; checkpoint; what is left of fetching compiled code, where that
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
