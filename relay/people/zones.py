"""Time zones by name, and times formatted in the reader's own zone. Reads no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from relay.core.errors import BadConfig

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LATEST = 2.5e11
"""Unix seconds within the years a calendar has."""
FORM = "%a %Y-%m-%d %H:%M %Z"
"""The format of every printed time."""
HERE = "here"
"""The reader's zone, where a function takes a zone's name."""


class NoZones(BadConfig):
    """This Python has no time zone database, so a name cannot be checked."""

    def __init__(self, name: str) -> None:
        super().__init__(f"This machine has no time zone database, so {name[:60]!r} is unknown.")


@lru_cache(maxsize=2000)
def zone(name: str) -> tzinfo:
    """The IANA zone of that name; UTC needs no database. Raises BadConfig (78), NoZones without a database."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: the name of a folder of zones
        if name == "UTC":
            return UTC
        if not has_zones():
            raise NoZones(name) from error
        raise BadConfig(f"{name[:60]!r} is not a time zone. Use an IANA name such as Europe/Berlin or UTC.") from error


def has_zones() -> bool:
    """Whether there is a time zone database, of the system or of the package tzdata."""
    try:
        return bool(ZoneInfo("Europe/Berlin"))
    except (ZoneInfoNotFoundError, OSError):
        return False


def is_zone(name: str | None) -> bool:
    """Whether `name` is an IANA time zone that this machine knows."""
    try:
        return bool(name and zone(name))
    except BadConfig:
        return False


class _Reader:
    """The person who reads this process's output: one, as a process has one terminal."""

    zone: str | None = None
    """IANA name; None: the machine's own zone, which may have no name."""


@contextmanager
def reading_in(name: str | None) -> Iterator[None]:
    """Within the block, times are printed in that zone (None: the machine's). Raises BadConfig (78) if unknown."""
    if name:
        zone(name)
    before, _Reader.zone = _Reader.zone, name or None
    try:
        yield
    finally:
        _Reader.zone = before


def zone_wanted(environ: Mapping[str, str]) -> str | None:
    """RELAY_ZONE as given, otherwise TZ if it names a zone, otherwise None."""
    wanted, machine = environ.get("RELAY_ZONE"), environ.get("TZ", "").removeprefix(":")
    return wanted or (machine if is_zone(machine) else None)


def reader() -> str:
    """The reader's zone for `wall`."""
    return _Reader.zone or HERE


def local(moment: float | None, form: str = FORM) -> str:
    """Unix seconds in the reader's own time zone: `Sat 2026-12-05 01:00 CET`; empty for None."""
    return "" if moment is None else _formatted(moment, _Reader.zone, form)


def stamp(moment: float) -> str:
    """The guide's spelling, in the reader's zone: `2026-12-05T01:00:00+01:00`, of UTC with a Z."""
    return _formatted(moment, _Reader.zone, "%Y-%m-%dT%H:%M:%S%:z").replace("+00:00", "Z")


def wall(t: float, name: str | None) -> str:
    """Unix seconds as a wall clock in that zone shows them: `Sat 2026-12-05 01:00 CET`; UTC without a usable zone."""
    return local(t) if name == HERE else _formatted(t, name if is_zone(name) else "UTC", FORM)


def known_as(name: str, moment: float) -> str:
    """The printed name of the zone that `wall` takes."""
    return local(moment, "%Z") if name == HERE else name


def _formatted(moment: float, name: str | None, form: str) -> str:
    there = datetime.fromtimestamp(min(max(moment, 0.0), LATEST), UTC).astimezone(zone(name) if name else None)
    offset = f"{there:%z}"
    offset, label = f"{offset[:3]}:{offset[3:5]}", there.tzname() or "UTC"
    named = label[:1] not in "+-" and (label not in ("UTC", "GMT", "UCT") or not there.utcoffset())
    label = label if named else f"UTC{offset}"  # many zones have no letters of their own, and TZ=UTC+3 has false ones
    return there.strftime(form.replace("%:z", offset).replace("%Z", label))
