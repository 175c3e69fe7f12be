"""Time zones and days by name, and moments as people read them, in the reader's own zone; reads no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from relay.core.errors import BadConfig

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LATEST = 2.5e11
"""Unix seconds within the years a calendar has."""
FORM = "%a %Y-%m-%d %H:%M %Z"
"""How people are told a moment, everywhere."""
HERE = "here"
"""Stands for the reader's zone where a zone is asked for."""


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


class _Reader:
    """Whom this process tells times: one person, as a process has one terminal."""

    zone: str | None = None
    """IANA name; None: the machine's own zone, which may have no name."""


@contextmanager
def reading_in(name: str | None) -> Iterator[None]:
    """Times are told in that zone meanwhile, None: in the machine's own. Raises BadConfig (78) for an unknown one."""
    if name:
        zone(name)
    before, _Reader.zone = _Reader.zone, name or None
    try:
        yield
    finally:
        _Reader.zone = before


def zone_wanted(environ: Mapping[str, str]) -> str | None:
    """RELAY_ZONE as it stands, else TZ where it is the name of a zone, else None."""
    wanted, machine = environ.get("RELAY_ZONE"), environ.get("TZ", "").removeprefix(":")
    return wanted or (machine if is_zone(machine) else None)


def reader() -> str:
    """The reader's zone for `wall`."""
    return _Reader.zone or HERE


def local(moment: float | None, form: str = FORM) -> str:
    """Unix seconds in the reader's own time zone: `Sat 2026-12-05 01:00 CET`; empty for None."""
    return "" if moment is None else _told(moment, _Reader.zone, form)


def stamp(moment: float) -> str:
    """The guide's spelling, in the reader's zone: `2026-12-05T01:00:00+01:00`, of UTC with a Z."""
    return _told(moment, _Reader.zone, "%Y-%m-%dT%H:%M:%S%:z").replace("+00:00", "Z")


def wall(t: float, name: str | None) -> str:
    """A moment as a wall clock in that zone shows it: `Sat 2026-12-05 01:00 CET`; UTC without a usable zone."""
    return local(t) if name == HERE else _told(t, name if is_zone(name) else "UTC", FORM)


def known_as(name: str, moment: float) -> str:
    """What to call the zone that `wall` is given."""
    return local(moment, "%Z") if name == HERE else name


def _told(moment: float, name: str | None, form: str) -> str:
    there = datetime.fromtimestamp(min(max(moment, 0.0), LATEST), UTC).astimezone(zone(name) if name else None)
    offset = f"{there:%z}"
    offset, called = f"{offset[:3]}:{offset[3:5]}", there.tzname() or "UTC"
    called = f"UTC{offset}" if called[:1] in "+-" else called  # many zones have no letters of their own
    return there.strftime(form.replace("%:z", offset).replace("%Z", called))
