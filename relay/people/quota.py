"""Hours that an account has left, and how they are known. Reads no clock and no store."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from relay.core.errors import BadConfig
from relay.core.ledger.canonical import NotCanonical, loads
from relay.core.ledger.usage import Interval
from relay.people.account import Account, Reading
from relay.people.periods import Reset
from relay.people.policy import Provider

AHEAD_S = 600.0
"""A reading dated further ahead than this came from a wrong clock and is ignored."""
Source = Literal["official", "declared", "estimated"]


@dataclass(frozen=True)
class Quota:
    """Hours left until the provider's next reset, in seconds; times are unix seconds by the store's clock."""

    left_s: float
    """Never below zero. Sessions measured since `read_at` are already subtracted."""
    of_s: float | None
    """The whole allowance of one period; None if unknown."""
    source: Source
    """The provider's own number, a person's declaration, or weekly hours less measured sessions."""
    read_at: float
    """When the number was read or declared; for an estimate, when it was computed."""
    resets_at: float | None
    """None if the provider names no reset."""
    stale: bool = False
    """Whether the last reading is older than the last reset, so that this is an estimate again."""

    def age_s(self, now: float) -> float:
        """Age of the number in seconds."""
        return max(0.0, now - self.read_at)


def reset_of(account: Account, provider: Provider) -> Reset | None:
    """The account's own reset, otherwise its provider's. Hours that only its person named count from Monday."""
    known = account.week or provider.reset
    return Reset(day="mon", zone=account.usable_zone) if known is None and account.weekly_hours else known


def hours_of(account: Account, provider: Provider) -> float | None:
    """Hours a week: as declared, otherwise from the provider's record."""
    return account.weekly_hours or provider.weekly_hours


def left(account: Account, provider: Provider, used: Callable[[Interval], float], now: float) -> Quota | None:
    """Quota at `now`; `used` gives the seconds measured in an interval. None if no hours are known.

    A reading counts until the next reset, less the sessions measured since. Otherwise the result is the weekly hours
    less this week's sessions. That is an upper bound, because providers count longer than leases.
    """
    reset, hours = reset_of(account, provider), hours_of(account, provider)
    week = reset.week(now) if reset else None
    reading = account.quota
    if reading is not None and reading.read_at <= now + AHEAD_S:
        ends = reading.resets_at or (reset.week(reading.read_at)[1] if reset else None)
        if ends is None or now < ends:
            rest = max(0.0, reading.left_s - used((min(reading.read_at, now), now)))
            return Quota(rest, reading.of_s or _seconds(hours), reading.source, reading.read_at, ends)
    if hours is None or week is None:
        return None
    rest = max(0.0, hours * 3600 - used(week))
    return Quota(rest, hours * 3600, "estimated", now, week[1], stale=reading is not None)


def _seconds(hours: float | None) -> float | None:
    return None if hours is None else hours * 3600


# --- Parses a provider's own quota output ---------------------------------------------------------------------------

MAX_BYTES = 100_000
MAX_HOURS = 24 * 366.0
MAX_DAYS = 400
_AMOUNT = re.compile(r"(?i)\s*(\d{1,9}(?:\.\d{1,9})?)\s*(h|hours?|m|min|minutes?|s|sec|seconds?)?\s*")
_BEGIN = re.compile(rb"\[\s*\{")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0}
HOW = (
    "Pipe in the output of `kaggle quota --format json` (kaggle 2.2.1 or later), or give --left HOURS "
    "[--of HOURS] [--resets TIME]."
)


def official(data: bytes, resource: str, now: float) -> Reading:
    """The row of `resource` in the output of `kaggle quota --format json`, read at `now` (unix seconds).

    Uses `resource`, `used`, `remaining`, `total` and `refreshAt` of each row (amounts such as `12.34h`; plain numbers
    are hours). Ignores other fields and any text around the list. Raises BadConfig (78).
    """
    rows = [row for row in _rows(data) if resource.casefold() in str(row.get("resource", "")).casefold()]
    if not rows:
        raise BadConfig(f"The input names no quota of {resource}. {HOW}")
    row = rows[0]
    used, rest, whole = (_amount(row.get(key), key) for key in ("used", "remaining", "total"))
    if rest is None and used is not None and whole is not None:
        rest = max(0.0, whole - used)
    if rest is None or (whole is not None and rest > whole):
        raise BadConfig(f"The input does not give the remaining {resource} hours. {HOW}")
    return Reading(left_s=rest, of_s=whole, source="official", read_at=now, resets_at=_refresh(row, now))


def declared(left_hours: float, of_hours: float | None, resets: str | None, now: float, zone: Any = UTC) -> Reading:
    """A reading from hours that a person declares. Raises BadConfig (78)."""
    for hours in (left_hours, of_hours or 0.0):
        if not (math.isfinite(hours) and 0 <= hours <= MAX_HOURS):
            raise BadConfig(f"{hours:g} hours is not possible. Give 0 to {MAX_HOURS:g}.")
    if of_hours is not None and left_hours > of_hours:
        raise BadConfig(f"{left_hours:g} hours cannot be left of {of_hours:g}. Give --left at most --of.")
    return Reading(
        left_s=left_hours * 3600,
        of_s=of_hours * 3600 if of_hours else None,
        source="declared",
        read_at=now,
        resets_at=moment(resets, now, zone) if resets else None,
    )


def _refresh(row: Mapping[str, Any], now: float) -> float | None:
    """When the hours reset. Raises BadConfig (78), with advice, as no person typed this value."""
    given = row.get("refreshAt")
    try:
        return moment(str(given), now) if given else None
    except BadConfig:
        raise BadConfig(f"refreshAt {str(given)[:40]!r} is not a future time; the output may be old. {HOW}") from None


def moment(text: str, now: float, zone: Any = UTC) -> float:
    """An ISO-8601 date or time ahead, as unix seconds; without an offset it is in `zone`. Raises BadConfig (78)."""
    try:
        found = datetime.fromisoformat(text.strip()[:40])
        then = (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise BadConfig(f"{text[:40]!r} is not a time. Write e.g. 2026-12-05, 2026-12-05T10:00 or …T10:00Z.") from None
    if not now < then <= now + MAX_DAYS * 86400:
        raise BadConfig(f"{text[:40]!r} is past, or more than {MAX_DAYS} days ahead. Write another time.")
    return then


def _rows(data: bytes) -> Iterable[Mapping[str, Any]]:
    """The list in the text; warnings around it are ignored. Raises BadConfig (78) if it is too long."""
    if len(data) > MAX_BYTES:
        raise BadConfig(f"The input has more than {MAX_BYTES} bytes. {HOW}")
    begin, end = _BEGIN.search(data), data.rfind(b"]")
    try:
        plain = loads(data[begin.start() : end + 1], MAX_BYTES) if begin and begin.start() < end else []
    except NotCanonical:
        plain = []
    return [row for row in plain if isinstance(row, dict)]


def _amount(value: object, key: str) -> float | None:
    """Seconds; None if the field is absent."""
    if value is None:
        return None
    found = _AMOUNT.fullmatch(str(value)[:40]) if not isinstance(value, bool) else None
    seconds = float(found[1]) * _UNIT_S[(found[2] or "h")[0].lower()] if found else math.nan
    if not 0 <= seconds <= MAX_HOURS * 3600:
        raise BadConfig(f"{key} {str(value)[:40]!r} is not a number of hours. {HOW}")
    return seconds
