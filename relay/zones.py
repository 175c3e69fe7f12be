"""Time zones and days by name, and moments as the clocks there show them; reads no clock."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from relay.errors import BadConfig

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LATEST = 2.5e11
"""Unix seconds within the years a calendar has."""


@lru_cache(maxsize=2000)
def zone(name: str) -> ZoneInfo:
    """The IANA zone of that name. Raises BadConfig (78)."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: the name of a folder of zones
        raise BadConfig(f"{name[:60]!r} is not a time zone. Use an IANA name such as Europe/Berlin or UTC.") from error


def is_zone(name: str | None) -> bool:
    """Whether that is an IANA time zone which this machine knows."""
    try:
        return bool(name and zone(name))
    except BadConfig:
        return False


def local(moment: float | None, form: str = "%a %Y-%m-%d %H:%M %Z") -> str:
    """Unix seconds in the reader's own time zone: `Sat 2026-12-05 01:00 CET`; empty for None."""
    return "" if moment is None else datetime.fromtimestamp(moment, UTC).astimezone().strftime(form)


def wall(t: float, name: str | None) -> str:
    """A moment as a wall clock shows it: Sat 2026-12-05 14:30 (Europe/Berlin); UTC without a usable zone."""
    known = name if name and is_zone(name) else "UTC"
    return (
        f"{datetime.fromtimestamp(min(max(t, 0.0), LATEST), UTC).astimezone(zone(known)):%a %Y-%m-%d %H:%M} ({known})"
    )
