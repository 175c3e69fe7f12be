"""Parses a person's weekly availability, a text in their time zone. Reads no clock.

`mon-fri 18:00-23:00; sat,sun 09:00-22:00`: parts end with `;`, each has days, then times. A time that ends before it
starts continues on the next day; 24:00 is midnight. Times are wall times, so a window is an hour longer or shorter in
the night of a clock change.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo
from enum import StrEnum

from relay.core.errors import BadConfig
from relay.people.zones import DAYS, zone

MIDNIGHT = 24 * 60
WEEK_S = 7 * 86400
LONGEST_LOOK_S = 400 * 86400
"""Windows are searched this far ahead."""
_RANGE = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])")
EXAMPLE = "mon-fri 18:00-23:00; sat,sun 09:00-22:00"

Interval = tuple[float, float]
Window = tuple[int, int, int]
"""Day of the week (0 is Monday), first minute of the day, end in minutes since that midnight, at most two days."""


def parse(text: str) -> tuple[Window, ...]:
    """The windows of a week, in order. Raises BadConfig (78) that names the unreadable part."""
    found: set[Window] = set()
    for part in text.strip().strip(";").split(";"):
        days, _, times = part.strip().lower().partition(" ")
        if not times.strip():
            raise _unreadable(part, "it needs days and times")
        for day in _days(days, part):
            found |= {(day, start, end) for start, end in _times(times, part)}
    return tuple(sorted(found))


def _days(text: str, part: str) -> Iterator[int]:
    for word in text.split(","):
        ends = word.split("-")
        if word == "daily":
            yield from range(7)
        elif len(ends) <= 2 and all(end in DAYS for end in ends):
            first, last = DAYS.index(ends[0]), DAYS.index(ends[-1])
            yield from ((first + more) % 7 for more in range((last - first) % 7 + 1))
        else:
            raise _unreadable(part, f"{word!r} is not a day: use {', '.join(DAYS)}, a range such as mon-fri, or daily")


def _times(text: str, part: str) -> Iterator[tuple[int, int]]:
    for word in text.replace(" ", "").split(","):
        digits = _RANGE.fullmatch(word)
        hours = [int(group) for group in digits.groups()] if digits else [99, 0, 99, 0]
        start, end = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
        if start >= MIDNIGHT or end > MIDNIGHT:
            raise _unreadable(part, f"{word!r} is not a time: use HH:MM-HH:MM, from 00:00 to 24:00")
        if start == end:
            raise _unreadable(part, f"{word!r} starts when it ends; a whole day is 00:00-24:00")
        yield start, end if end > start else end + MIDNIGHT


def _unreadable(part: str, why: str) -> BadConfig:
    return BadConfig(f"Cannot read the availability {part.strip()[:60]!r}: {why}. Example: {EXAMPLE!r}.")


@dataclass
class Windows:
    """When a person is available; `windows` None means always. Times are unix seconds."""

    windows: tuple[Window, ...] | None = None
    zone: str = "UTC"
    _known: list[Interval] = field(default_factory=list, repr=False)
    _starts: list[float] = field(default_factory=list, repr=False)
    _from: float = field(default=math.inf, repr=False)
    _until: float = field(default=-math.inf, repr=False)

    @property
    def always(self) -> bool:
        """Whether the person is always available, or did not say."""
        return self.windows is None

    def around(self, t: float) -> Interval | None:
        """The window that contains `t`, otherwise the next one; None if none begins within 400 days.

        Ends are exclusive. Windows that touch or overlap are merged.
        """
        if self.windows is None:
            return (-math.inf, math.inf)
        self._look(t)
        at = bisect_right(self._starts, t) - 1
        if at >= 0 and self._known[at][1] > t:
            return self._known[at]
        return self._known[at + 1] if at + 1 < len(self._known) else None

    def open_at(self, t: float) -> bool:
        """Whether the person is available at `t`."""
        found = self.around(t)
        return found is not None and found[0] <= t

    def opens(self, t: float) -> float | None:
        """The first moment from `t` on that is in a window; None if there is none within 400 days."""
        found = self.around(t)
        return None if found is None else max(t, found[0])

    def fits(self, t: float, seconds: float) -> Interval | None:
        """The first moment from `t` on when a window stays open for `seconds`, and that window's end."""
        found = self.around(t)
        while found and found[1] - max(t, found[0]) < seconds:
            found = self.around(found[1]) if found[1] < t + LONGEST_LOOK_S else None
        return (max(t, found[0]), found[1]) if found else None

    def _look(self, t: float) -> None:
        """Compute whole weeks around `t` until a window ends after it, or 400 days have passed."""
        if not self._from <= t <= self._until + LONGEST_LOOK_S:
            self._from = self._until = t - WEEK_S
            self._known.clear()
            self._starts.clear()
        while self._until < t + 2 * WEEK_S:
            self._extend()
        while self._starts[-1:] <= [t] and self._until < t + LONGEST_LOOK_S:
            self._extend()

    def _extend(self) -> None:
        """Compute four more weeks. A window across the edge is found on both sides and merged."""
        start, end = self._until, self._until + 4 * WEEK_S
        for opened, closed in _between(self.windows or (), self.zone, start, end):
            if self._known and opened <= self._known[-1][1]:
                self._known[-1] = (self._known[-1][0], max(self._known[-1][1], closed))
            else:
                self._known.append((opened, closed))
                self._starts.append(opened)
        self._until = end


def open_part(interval: Interval, people: Sequence[Windows]) -> float:
    """Seconds of an interval in which at least one person is available; all of it without people."""
    t, end, found = interval[0], interval[1], 0.0
    if not people:
        return end - t
    while t < end:
        around = [window for windows in people if (window := windows.around(t))]
        until = max((closes for opens, closes in around if opens <= t), default=t)
        found += min(until, end) - t
        t = until if until > t else min((opens for opens, _ in around), default=end)
    return found


def _between(windows: tuple[Window, ...], zone_name: str, start: float, end: float) -> list[Interval]:
    """Windows of the local dates from three days before `start` to `end`, sorted."""
    tz = zone(zone_name)
    day, last = (datetime.fromtimestamp(t, tz).date() for t in (start - 3 * 86400, end))
    found = []
    while day <= last:
        for weekday, opens, closes in windows:
            if weekday == day.weekday():
                interval = (instant(day, opens, tz, 0), instant(day, closes, tz, 1))
                if interval[1] > interval[0]:
                    found.append(interval)
        day += timedelta(days=1)
    return sorted(found)


def instant(day: date, minutes: int, tz: tzinfo, fold: int) -> float:
    """Unix seconds when a wall clock in `tz` shows `minutes` after midnight of `day`.

    If there are two such moments, `fold` 0 is the first and 1 the last. A skipped time is the moment of the skip.
    """
    wall = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)
    t = wall.replace(tzinfo=tz, fold=fold).timestamp()
    if datetime.fromtimestamp(t, tz).replace(tzinfo=None) == wall:
        return t
    before, after = (wall.replace(tzinfo=tz, fold=side).timestamp() for side in (1, 0))
    while after - before > 1:
        middle = (before + after) // 2
        shown = datetime.fromtimestamp(middle, tz).replace(tzinfo=None)
        before, after = (middle, after) if shown < wall else (before, middle)
    return after


class Unsure(StrEnum):
    """Doubts about an account's windows."""

    UNSAID = "unsaid"
    """Its person gave none: taken as always."""
    UNREADABLE = "unreadable"
    """Taken as always."""
    NO_ZONE = "no zone"
    """Taken as UTC."""


def read(text: str | None, zone_name: str | None) -> tuple[Windows, Unsure | None]:
    """An account's windows, and doubts about them. Never raises, because other people wrote the text."""
    if not text:
        return Windows(), Unsure.UNSAID
    try:
        windows = parse(text)
        zone(zone_name or "UTC")
    except BadConfig:
        return Windows(), Unsure.UNREADABLE
    return Windows(windows, zone_name or "UTC"), None if zone_name else Unsure.NO_ZONE
