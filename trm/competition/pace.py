"""Decides from measured times what still fits before the end of a solve. The clock is an argument."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

EXIT_S = 5.0
"""Reserve for the end of the process and for unmeasured work."""
SAMPLES = 20
REWRITE_S, SHARE = 0.2, 0.05
"""A file is rewritten after this many seconds, and later if that took more than this share of the time."""


class Pace:
    """Times of rounds of chunks and of rewriting the file, against a deadline on the same clock."""

    def __init__(self, now: Callable[[], float], deadline: float = math.inf) -> None:
        self.now, self.deadline = now, deadline
        self._rounds, self._writes = deque[float](maxlen=SAMPLES), deque[float](maxlen=SAMPLES)
        self._written_at = now()

    @property
    def left(self) -> float:
        """Seconds for rounds: what is left without the last rewriting and the exit."""
        return self.deadline - self.now() - _high(self._writes) - EXIT_S

    def affords(self) -> bool:
        """Whether one more round ends in time; the first is assumed to."""
        return self.left > _high(self._rounds)

    def training(self, wanted: float, spent: float, votes_s: float) -> float:
        """Seconds for training before the votes, of which `spent` are over. The votes keep what they need, at most half
        of all."""
        every = spent + self.left
        return min(wanted, every - min(votes_s, every / 2))

    def round(self, seconds: float) -> None:
        """A round has taken so long."""
        self._rounds.append(seconds)

    def wrote(self, seconds: float) -> None:
        """Rewriting the file has taken so long, until now."""
        self._writes.append(seconds)
        self._written_at = self.now()

    def rewrites(self) -> bool:
        """Whether it is time to rewrite the file."""
        last = self._writes[-1] if self._writes else 0.0
        return self.now() - self._written_at >= max(REWRITE_S, last / SHARE)


def _high(seen: deque[float]) -> float:
    """The longest of the newest samples, more for few of them."""
    return max(seen) * (1 + 1 / len(seen)) if seen else 0.0
