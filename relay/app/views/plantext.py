"""Draws a plan for people, in UTF-8 or ASCII, for any width or for none; computes nothing but columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relay.app.messages.wording import counted, duration, printable
from relay.app.terminal.cells import Column, fold, table
from relay.people.periods import WEEK_S
from relay.people.plan import Forecast, Interval, Week
from relay.people.simulate import Calendar
from relay.people.zones import wall

NARROWEST, WIDEST = 60, 200
LANES = 12
"""Accounts with a line of their own in the picture of who trains when."""
ROWS = 60
"""Weeks that are listed; a longer plan shows the first and the last ones."""
NAME, BAR = 14, 20
"""Columns of an account's id, and of a week's bar."""


@dataclass(frozen=True)
class Look:
    """How to draw: marks, and columns; None where nobody looks at a terminal, and then without bars."""

    ascii_only: bool = False
    columns: int | None = None

    @property
    def width(self) -> int:
        """Columns to fill."""
        return max(NARROWEST, min(WIDEST, self.columns or 100))

    @property
    def full(self) -> str:
        return "#" if self.ascii_only else "█"

    @property
    def empty(self) -> str:
        return "." if self.ascii_only else "·"


def draw(found: Forecast, title: str, zone: str, notes: Sequence[str], look: Look) -> str:
    """The whole plan."""
    lines = [title, *_ends(found, zone), ""]
    if look.columns is not None and found.middle.sessions:
        lines += [*_span(found, look), "", *_lanes(found.middle, found.course.now, look), ""]
    lines += [*_weeks(found, zone, look).splitlines(), ""]
    lines += [_limits(found), *_helps(found), *_intervals(found), *(f"Note: {text}" for text in notes)]
    folded = lines if look.columns is None else [part for line in lines for part in fold(line, look.width)]
    return "\n".join(line.rstrip() for line in folded)


def _ends(found: Forecast, zone: str) -> Iterator[str]:
    now, ends = found.course.now, found.finish
    for share, end in (("10", ends.p10), ("50", ends.p50), ("90", ends.p90)):
        if end < math.inf:
            yield f"  p{share}  {wall(end, zone)}, in {duration(end - now)}"
        else:
            yield f"  p{share}  not within two years"
    yield f"So many of a hundred end by then, over {found.calendars:,} simulated calendars."


def _span(found: Forecast, look: Look) -> Iterator[str]:
    """Now, the range and its middle on one line."""
    inside = look.width - 2
    ends = [end if end < math.inf else found.course.now + 1.2 * WEEK_S for end in _moments(found)]
    whole = max(1.0, ends[-1] - found.course.now)
    a, b, c = (min(inside - 1, int((end - found.course.now) / whole * (inside - 1))) for end in ends)
    cells = [look.empty] * a + [look.full] * (c - a + 1) + [" "] * (inside - c - 1)
    cells[b] = "|"
    yield "now" + "p10 | p50 | p90".rjust(look.width - 3)
    yield f"[{''.join(cells)}]"


def _moments(found: Forecast) -> tuple[float, float, float]:
    return found.finish.p10, found.finish.p50, found.finish.p90


def _lanes(calendar: Calendar, now: float, look: Look) -> Iterator[str]:
    """Who trains when in the middle calendar; a mark wherever a session falls."""
    inside = look.width - NAME - 3
    whole = max(1.0, calendar.sessions[-1].end - now)
    lanes: dict[str, list[str]] = {}
    for one in calendar.sessions:
        lane = lanes.setdefault(one.account, [look.empty] * inside)
        first, last = (min(inside - 1, int((t - now) / whole * inside)) for t in (one.start, one.end))
        lane[first : last + 1] = [look.full] * (last - first + 1)
    for account, lane in list(lanes.items())[:LANES]:
        yield f"{account[:NAME]:{NAME}} |{''.join(lane)}|"
    if len(lanes) > LANES:
        yield f"{'':{NAME}}  and {len(lanes) - LANES:,} more accounts"


def _weeks(found: Forecast, zone: str, look: Look) -> str:
    """A row a week; of a long plan the first and the last ones."""
    weeks, left_out = list(enumerate(found.weeks, 1)), len(found.weeks) - ROWS
    kept = [*weeks[: ROWS - 5], None, *weeks[-5:]] if left_out > 0 else weeks
    rows = [_week(*one, zone, look) if one else ("", f"and {left_out:,} more", *[""] * 5) for one in kept]
    titles = ("week", "begins", "sessions", "hours", "steps", "done", "")
    columns = zip(titles, *rows, strict=True)
    shown = [Column(title, cells, rank=not title, right=title not in ("begins", "")) for title, *cells in columns]
    return table(shown if look.columns else shown[:-1], look.columns and look.width, not look.ascii_only)


def _week(number: int, week: Week, zone: str, look: Look) -> tuple[str, ...]:
    filled = int(BAR * week.done + 1e-9)
    numbers = f"{week.sessions:,}", f"{week.hours:,.1f}", f"{week.steps:,.0f}", f"{week.done:.1%}"
    return str(number), wall(week.begins, zone)[4:20], *numbers, look.full * filled + look.empty * (BAR - filled)


def _limits(found: Forecast) -> str:
    shares, why = (
        found.shares,
        {
            "lease": "the lease: one session at a time, and it is nearly always held",
            "hand-overs": "the time between two sessions",
            "quotas": "quotas: hours are used up before their resets",
            "availability": "availability: nobody is awake",
            "start-up": f"the start-up: it takes {duration(found.course.startup_s)}, no session is longer, and no step "
            f"is ever gained",
        }[found.limit],
    )
    return (
        f"What limits: {why}. Of the time, {shares.trained:.0%} is sessions, {shares.handed_over:.0%} hand-overs, "
        f"{shares.quota:.0%} waiting for resets, {shares.asleep:.0%} waiting for people."
    )


def _helps(found: Forecast) -> Iterator[str]:
    for one in found.helps:
        saved = f"ends {duration(one.saves_s)} sooner" if one.saves_s >= 60 else "ends no sooner"
        yield f"One more account like {one.like} ({printable(one.kind)}): {saved}."


def _intervals(found: Forecast) -> Iterator[str]:
    if not found.intervals:
        return
    dies, stalls = any(one.lost_s for one in found.intervals), found.intervals[0].stall_s is not None
    parts = [] if dies else ["no session is taken to die, so none loses anything"]
    if dies or stalls:
        parts += [f"every {counted(one.steps, 'step')} {_cost(one, dies)}" for one in found.intervals]
    parts += [] if stalls else ["what a snapshot stalls was not measured"]
    yield f"Committing, from here to the end: {'; '.join(parts)}."


def _cost(one: Interval, dies: bool) -> str:
    costs = [("loses", one.lost_s)] if dies else []
    costs += [] if one.stall_s is None else [("stalls", one.stall_s)]
    return " and ".join(f"{what} {duration(s) if s >= 0.5 or not s else 'less than 1 s'}" for what, s in costs)
