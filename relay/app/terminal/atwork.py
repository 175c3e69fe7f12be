"""Describes a session's current activity on one line or two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from relay.app.messages.wording import duration, numbers
from relay.app.terminal.cells import cut, in_ascii
from relay.core.workload import Progress as Step

SHORTEST_BAR, LONGEST_BAR, FEW = 8, 40, 2
"""Least and most columns of the bar; number of metrics that take precedence over the bar."""
IDLE_S = 3.0
"""Seconds without a step after which the line shows the transfer."""


class AtWork:
    """Written from any thread by single assignments, read by the display. Times are monotonic seconds."""

    def __init__(
        self, target: int, monotonic: Callable[[], float], short: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`short`: {metric to show: short name} (`Measures.short`)."""
        self.target, self.now, self.short = target, monotonic, short
        self.made, self.rate = 0, 0.0
        """The newest step, and steps a second since the session's first; a rate of 0 until two steps were seen."""
        self._first: tuple[int, float] | None = None
        self.metrics: Mapping[str, float] = {}
        self.stepped_at = -math.inf
        self.doing: tuple[str, float] = ("", 0.0)
        """The activity while no step is made, and its beginning; empty: it trains."""
        self.transfer = ""
        """How far a long transfer is; empty without one."""
        self.safe: tuple[int, float] | None = None
        """The newest step known to be durable, and since when."""
        self.deadline = math.inf
        """The session is over by then."""

    def step(self, progress: Step) -> None:
        """Record a training step."""
        self.stepped_at, self.metrics = self._add(progress.step), progress.metrics

    def phase(self, text: str) -> None:
        """Begin an activity. The same words before the colon continue the current one and keep its start."""
        now, (before, since) = self.now(), self.doing
        goes_on = text.partition(":")[0] == before.partition(":")[0]
        self.doing = text, since if goes_on else now

    def committed(self, step: int) -> None:
        """Record that a step is durable. Not every step is reported, so a newer step than known counts as trained."""
        if self._first and step > self.made:
            self._add(step)
        self.safe = step, self.now()

    def _add(self, step: int) -> float:
        now = self.now()
        self._first = self._first or (step, now)
        steps, seconds = step - self._first[0], now - self._first[1]
        self.made, self.rate = step, steps / seconds if steps > 0 and seconds > 0 else 0.0
        return now

    def plain(self) -> str:
        """Return everything on one line without a bar, for plain output."""
        pace = f"  {self._speed}  {self._left}" if self.rate else ""
        training = f"{self._head}{pace}{numbers(self.metrics, self.short)}" if self._first else ""
        return "; ".join(filter(None, [self._activity or training, self.transfer or self._safety, self._session]))

    def lines(self, width: int, ascii_only: bool = False) -> list[str]:
        """Return the activity, and below it pace, time left and the newest durable step; no line wider than `width`."""
        waits = self.now() - self.stepped_at >= IDLE_S or self.doing[0]  # less useful than the transfer
        waited_for = self.transfer if waits and "%" not in self.doing[0] else ""
        above = waited_for or self._activity or (self.bar_line(width, ascii_only) if self._first else "")
        moved = [] if waited_for or not self.transfer else [self.transfer]
        durable = self._safety or ("nothing committed yet" if self._first and not moved else "")
        below = [*moved, durable, self._session, self._speed if self.rate else ""]
        between = " | " if ascii_only else " · "
        shown = [_within(above, width), _within(f"  {between.join(filter(None, below))}".rstrip(), width, between)]
        return [in_ascii(line) if ascii_only else line for line in shown if line]

    def bar_line(self, width: int, ascii_only: bool = False) -> str:
        """Return step, percent and time left at any width; a bar, and as many metrics as fit."""
        share = min(1.0, self.made / self.target) if self.target else 0.0
        middle = f"  {int(100 * share)}%  {self._left}"
        told = numbers(self.metrics, self.short, 3)
        for least, kept in ((SHORTEST_BAR + 2, FEW), (0, 0)):
            while told.count("  ") > kept and len(self._head + middle + told) + least > width:
                told = told.rpartition("  ")[0]
        room = width - len(self._head + middle + told) - 2
        return self._head + bar(share, min(LONGEST_BAR, room), ascii_only) + middle + told

    @property
    def _head(self) -> str:
        return f"step {self.made:,}/{self.target:,}"

    @property
    def _activity(self) -> str:
        text, since = self.doing
        spent = self.now() - since
        return f"{text}, {duration(spent)}" if text and spent >= 1 else text

    @property
    def _speed(self) -> str:
        return f"{self.rate * 3600:,.0f} steps/h"

    @property
    def _left(self) -> str:
        if self.made >= self.target:
            return "done"
        return f"{duration((self.target - self.made) / self.rate)} left" if self.rate else "time left unknown"

    @property
    def _safety(self) -> str:
        return f"step {self.safe[0]:,} safe {duration(self.now() - self.safe[1])} ago" if self.safe else ""

    @property
    def _session(self) -> str:
        left = self.deadline - self.now()
        return f"session: {duration(left)} left" if left < math.inf else ""


def bar(share: float, length: int, ascii_only: bool) -> str:
    """Return a bar of the completed share after two blanks; empty if it would be too short to read."""
    filled = int(share * length)
    full, rest = "#-" if ascii_only else "━╌"
    return f"  {full * filled}{rest * (length - filled)}" if length >= SHORTEST_BAR else ""


def _within(text: str, width: int, *marks: str) -> str:
    """Return the text without its last clauses, or its last words, so that it fits."""
    for mark in (*marks, "; ", ", ", " "):
        while len(text) > width and mark in text.strip():
            text = text.rpartition(mark)[0]
    return cut(text, width)
