"""How long training stands still for checkpoints, as its own progress reports show it; reads no clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

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
