"""Checks parts of an answer that only the service itself sends: not a login page, a proxy or a broken server."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

EARLIEST, LATEST = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2010, 2100))
"""Moments outside are not a service's, unix seconds: Dropbox, the youngest of them, is from 2008."""


class Impossible(ValueError):
    """A text or number that is not a moment, or not one of these times."""


def moment(seconds: float) -> float:
    """The moment itself, unix seconds. Raises Impossible outside EARLIEST and LATEST."""
    if not EARLIEST <= seconds < LATEST:
        raise Impossible(f"the time {seconds:.0f} s")
    return seconds


def moment_of(when: datetime) -> float:
    """The same for a datetime; one without a zone is in UTC."""
    return moment((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


def date_of(header: str) -> float:
    """The moment in a Date header, unix seconds. Raises Impossible."""
    return moment(_parsed(header))


def _parsed(header: str) -> float:
    try:
        when = parsedate_to_datetime(header)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError) as error:
        raise Impossible(f"the date {header[:60]!r}") from error


def seconds_to_wait(retry_after: str, longest: float, otherwise: float) -> float:
    """Seconds by a Retry-After header, a number or a date, at most `longest`; `otherwise` if it is neither."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = _parsed(retry_after) - time.time()
        except Impossible:
            return otherwise
    return min(max(seconds, 0.0), longest) if math.isfinite(seconds) else otherwise
