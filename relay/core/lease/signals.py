"""Why a session should end, as one small object that signal handlers and the heartbeat set; it installs no handler."""

from __future__ import annotations

import math
from typing import Literal

Reason = Literal["stop", "notice", "sigterm", "sigint", "fenced"]
_URGENCY: dict[Reason, int] = {"stop": 0, "notice": 1, "sigterm": 2, "sigint": 3, "fenced": 4}


class StopSignal:
    """Set from anywhere, read at step boundaries. Plain attribute writes, so that a signal handler may call `ask`."""

    def __init__(self) -> None:
        self.reason: Reason | None = None
        """The most urgent reason asked for so far."""
        self.note = ""
        """One line for people, e.g. who asked."""
        self.until = math.inf
        """When the machine is gone, on the session's monotonic clock, if its cloud said so."""
        self.at_once = False
        """A second SIGINT: wait for nothing more."""
        self.under_lease = False
        """Whether there may be something to commit, and a lease to give back."""

    def ask(self, reason: Reason, note: str = "") -> None:
        """Ask the session to end at the next step boundary; a second 'sigint' sets `at_once`."""
        if reason == "sigint" and self.reason == "sigint":
            self.at_once = True
        if self.reason is None or _URGENCY[reason] > _URGENCY[self.reason]:
            self.reason, self.note = reason, note

    def warn(self, note: str, until: float) -> None:
        """The machine is taken back at `until` (monotonic): everything must be over by then."""
        self.until = min(self.until, until)
        self.ask("notice", note)

    @property
    def hurry(self) -> bool:
        """Whether a signal or a notice (not a plan) ends the session, so that only a short grace is left."""
        return self.reason in ("notice", "sigterm", "sigint")
