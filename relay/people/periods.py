"""When an account's hours begin anew: a provider's week in its zone, or seven days from a known moment; no clock."""

from __future__ import annotations

import math
from bisect import bisect_right

from relay.people.reset import Reset

WEEK_S = 7 * 86400.0


class Periods:
    """Every reset there will be, looked up as far as anybody asks; share one between accounts of a provider."""

    def __init__(self, rule: Reset | None, first: float) -> None:
        """`first`: the next reset, unix seconds, where no rule says more; infinite for never."""
        self._rule = rule
        self._first = first
        self._known: list[float] = []

    def after(self, t: float) -> float:
        """The first reset later than `t`."""
        if self._rule is None:
            return self._first if t < self._first else self._first + WEEK_S * (1 + (t - self._first) // WEEK_S)
        if not self._known or t < self._known[0]:
            self._known = [self._rule.week(t)[0]]
        while self._known[-1] <= t:
            self._known.append(self._rule.week(self._known[-1])[1])
        return self._known[bisect_right(self._known, t)]


NEVER = Periods(None, math.inf)
