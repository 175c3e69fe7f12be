"""Computes when an account's hours reset: a provider's week in its zone, or every seven days. Reads no clock."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from relay.core.errors import BadConfig
from relay.people.zones import DAYS, is_zone, zone

WEEK_S = 7 * 86400.0


class Periods:
    """All future resets, computed on demand. Share one object between the accounts of a provider."""

    def __init__(self, rule: Reset | None, first: float) -> None:
        """`first`: the next reset (unix seconds) if there is no rule; infinite for never."""
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


# --- When a provider's week begins, in its own IANA zone, across clock changes --------------------------------------

_WRITTEN = re.compile(
    r"(?i)\s*(?P<day>mon|tue|wed|thu|fri|sat|sun)[a-z]*\s+(?P<hour>\d{1,2}):(?P<minute>\d\d)(\s+(?P<zone>\S+))?\s*"
)


class Reset(BaseModel):
    """A moment of the week at which used hours reset to zero."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    day: Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    hour: Annotated[int, Field(ge=0, le=23)] = 0
    minute: Annotated[int, Field(ge=0, le=59)] = 0
    zone: str = "UTC"

    @field_validator("zone")
    @classmethod
    def _known(cls, name: str) -> str:
        if not is_zone(name):
            raise ValueError(f"{name!r} is not an IANA time zone")
        return name

    def __str__(self) -> str:
        return f"{self.day} {self.hour:02}:{self.minute:02} {self.zone}"

    def week(self, now: float) -> tuple[float, float]:
        """The week around `now` (unix seconds): begin <= now < end, and the next one begins where this one ends.

        A week across a clock change is an hour longer or shorter, like the provider's. A time that the change skips is
        an hour later; of a time that occurs twice it is the first.
        """
        local = datetime.fromtimestamp(now, zone(self.zone))
        start = local.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0, fold=0)
        start -= timedelta(days=(local.weekday() - DAYS.index(self.day)) % 7)
        if start.timestamp() > now:
            start -= timedelta(days=7)
        return start.timestamp(), (start + timedelta(days=7)).timestamp()


def parse_reset(text: str) -> Reset:
    """`sat 00:00 UTC`; without a zone, UTC. Raises BadConfig (78)."""
    found = _WRITTEN.fullmatch(text[:80])
    try:
        if found is None:
            raise ValueError("not a day, a time and a zone")
        parts = found.groupdict(default="UTC")
        numbers = {"hour": int(parts["hour"]), "minute": int(parts["minute"])}
        return Reset.model_validate({"day": parts["day"].lower(), "zone": parts["zone"], **numbers})
    except ValueError:
        raise BadConfig(
            f"{text[:80]!r} is not a reset. Write a day, a time and an IANA time zone, e.g. 'sat 00:00 UTC' or "
            f"'mon 09:00 Europe/Berlin'."
        ) from None
