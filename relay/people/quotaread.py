"""Reads what a provider's own tool prints of a quota into numbers; runs no tool and keeps no text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from relay.core.errors import BadConfig
from relay.core.ledger.canonical import NotCanonical, loads
from relay.people.account import Reading

MAX_BYTES = 100_000
MAX_HOURS = 24 * 366.0
MAX_DAYS = 400
_AMOUNT = re.compile(r"(?i)\s*(\d{1,9}(?:\.\d{1,9})?)\s*(h|hours?|m|min|minutes?|s|sec|seconds?)?\s*")
_BEGIN = re.compile(rb"\[\s*\{")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0}
HOW = (
    "Pipe in what `kaggle quota --format json` prints (kaggle 2.2.1 or later), or say it yourself with --left HOURS "
    "[--of HOURS] [--resets TIME]."
)


def official(data: bytes, resource: str, now: float) -> Reading:
    """The row of `resource` in the output of `kaggle quota --format json`, read at `now` (unix seconds).

    Of each row `resource`, `used`, `remaining`, `total` and `refreshAt` are looked at (amounts such as `12.34h`,
    plain numbers are hours), all the rest and any text around the list is passed over. Raises BadConfig (78).
    """
    rows = [row for row in _rows(data) if resource.casefold() in str(row.get("resource", "")).casefold()]
    if not rows:
        raise BadConfig(f"What was piped in names no quota of {resource}. {HOW}")
    row = rows[0]
    used, rest, whole = (_amount(row.get(key), key) for key in ("used", "remaining", "total"))
    if rest is None and used is not None and whole is not None:
        rest = max(0.0, whole - used)
    if rest is None or (whole is not None and rest > whole):
        raise BadConfig(f"What was piped in does not say what remains of {resource}. {HOW}")
    return Reading(left_s=rest, of_s=whole, source="official", read_at=now, resets_at=_refresh(row, now))


def declared(left_hours: float, of_hours: float | None, resets: str | None, now: float, zone: Any = UTC) -> Reading:
    """What a person says. Raises BadConfig (78)."""
    for hours in (left_hours, of_hours or 0.0):
        if not (math.isfinite(hours) and 0 <= hours <= MAX_HOURS):
            raise BadConfig(f"{hours:g} hours cannot be: say 0 to {MAX_HOURS:g}.")
    if of_hours is not None and left_hours > of_hours:
        raise BadConfig(f"{left_hours:g} hours cannot be left of {of_hours:g}.")
    return Reading(
        left_s=left_hours * 3600,
        of_s=of_hours * 3600 if of_hours else None,
        source="declared",
        read_at=now,
        resets_at=moment(resets, now, zone) if resets else None,
    )


def _refresh(row: Mapping[str, Any], now: float) -> float | None:
    """When the hours come back. Raises BadConfig (78) for what no person typed, with what they can do."""
    told = row.get("refreshAt")
    try:
        return moment(str(told), now) if told else None
    except BadConfig:
        raise BadConfig(f"refreshAt says {str(told)[:40]!r}, which is no time ahead: an old output? {HOW}") from None


def moment(text: str, now: float, zone: Any = UTC) -> float:
    """An ISO-8601 date or time ahead, as unix seconds; without an offset it is in `zone`. Raises BadConfig (78)."""
    try:
        found = datetime.fromisoformat(text.strip()[:40])
        then = (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise BadConfig(f"{text[:40]!r} is no time. Write e.g. 2026-12-05, 2026-12-05T10:00 or …T10:00Z.") from None
    if not now < then <= now + MAX_DAYS * 86400:
        raise BadConfig(f"{text[:40]!r} is over, or more than {MAX_DAYS} days ahead. Write another time.")
    return then


def _rows(data: bytes) -> Iterable[Mapping[str, Any]]:
    """The list in the text, whatever warnings stand around it."""
    if len(data) > MAX_BYTES:
        raise BadConfig(f"More than {MAX_BYTES} bytes were piped in. {HOW}")
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
        raise BadConfig(f"{key} says {str(value)[:40]!r}, which is no number of hours. {HOW}")
    return seconds
