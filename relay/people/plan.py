"""Forecasts when a run will finish, as a range over simulated calendars, and the effect of changes.

The rules and their reasons are in docs/decisions/0009-next-and-plan.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from relay.people.periods import WEEK_S
from relay.people.simulate import HORIZON_S, PRIOR_DIED, PRIOR_LIVED, Calendar, simulate
from relay.people.team import Member, Scenario

FEWEST, MOST = 10, 200
"""Simulated calendars."""
SESSIONS = 1_000_000
"""Simulated sessions in total: a year of one-hour sessions still gets more than a hundred calendars."""
WHAT_IF = SESSIONS // 50
"""The same, for each account that might be added."""
MEMBERS = 4
"""Setting up a calendar for this many accounts costs as much as one session."""
FEW, BRIEF = 40, 30_000
"""Calendars, and their sessions in total, for a range within a second or two."""
KINDS = 5
INTERVALS = (100, 250, 500, 1000, 2500)
"""Steps between commits that are compared with the present one."""
SATURATED = 0.9


@dataclass(frozen=True)
class Range:
    """Moments (unix seconds) before which 10, 50 and 90 of 100 simulated calendars end; infinite beyond two years."""

    p10: float
    p50: float
    p90: float
    sessions: int = 0
    """Of the middle calendar; 0 if not counted."""


@dataclass(frozen=True)
class Week:
    """Seven days of the middle calendar."""

    begins: float
    sessions: int
    hours: float
    steps: float
    done: float
    """Share of the target at its end, within 0 and 1."""


@dataclass(frozen=True)
class Help:
    """Time that one more account like an existing one would save."""

    like: str
    kind: str
    saves_s: float


@dataclass(frozen=True)
class CommitInterval:
    """Cost of committing every `steps` steps, from now to the target."""

    steps: int
    lost_s: float
    """Expected training lost by sessions that die."""
    stall_s: float | None
    """Time in which snapshots stall training; None if no snapshot was measured."""


@dataclass(frozen=True)
class Shares:
    """Where the middle calendar's time goes; they sum to 1."""

    trained: float
    handed_over: float
    quota: float
    asleep: float

    @property
    def limit(self) -> str:
        """The limiting factor: lease, hand-overs, quotas or availability."""
        if self.trained >= SATURATED or self.trained + self.handed_over >= SATURATED:
            return "lease" if self.trained >= self.handed_over else "hand-overs"
        return "quotas" if self.quota >= self.asleep else "availability"


@dataclass(frozen=True)
class Forecast:
    """The result of planning."""

    course: Scenario
    finish: Range
    calendars: int
    weeks: tuple[Week, ...]
    shares: Shares
    middle: Calendar
    """The calendar whose end is the median."""
    helps: tuple[Help, ...]
    intervals: tuple[CommitInterval, ...]

    @property
    def limit(self) -> str:
        """The limiting factor; `start-up` if no session is longer than the start-up, so that none makes a step."""
        longest = max(min(one.session_s, one.weekly_s or math.inf) for one in self.course.members)
        return "start-up" if longest <= self.course.startup_s else self.shares.limit


def forecast(course: Scenario, every_steps: int = 500, snapshot_s: float | None = None) -> Forecast | None:
    """The forecast; None without members. `snapshot_s`: measured stall of one snapshot, in seconds."""
    if not course.members:
        return None
    ends = finishes(course)
    seed = sorted(range(len(ends)), key=lambda seed: (ends[seed], seed))[_place(0.5, len(ends))]
    middle = simulate(course, seed, keep=True)
    return Forecast(
        course=course,
        finish=spread(ends),
        calendars=len(ends),
        weeks=tuple(weeks(course, middle)),
        shares=shares(middle),
        middle=middle,
        helps=tuple(helps(course, middle.count)),
        intervals=tuple(intervals(course, middle, every_steps, snapshot_s)),
    )


def finishes(course: Scenario) -> list[float]:
    """The end of each simulated calendar, by seed. Their number depends on their sessions."""
    first = simulate(course, 0)
    count = max(FEWEST, min(MOST, SESSIONS // _cost(course, first.count)))
    return [first.finish, *(simulate(course, seed).finish for seed in range(1, count))]


def _cost(course: Scenario, count: int) -> int:
    """Cost of one calendar, in sessions."""
    return max(1, count + len(course.members) // MEMBERS)


def spread(ends: Sequence[float]) -> Range:
    """Percentiles by nearest rank."""
    ordered = sorted(ends)
    low, middle, high = (ordered[_place(share, len(ordered))] for share in (0.1, 0.5, 0.9))
    return Range(low, middle, high)


def finish_range(course: Scenario) -> Range | None:
    """The range alone, from few calendars, for a line in a report or a message.

    None without members, without an end within two years, or if too many sessions are needed to compute it quickly.
    """
    first = simulate(course, 0, most=BRIEF)
    if first.finish == math.inf:
        return None
    count = max(3, min(FEW, BRIEF // _cost(course, first.count)))
    found = sorted((simulate(course, seed) for seed in range(count)), key=lambda one: one.finish)
    return replace(spread([one.finish for one in found]), sessions=found[_place(0.5, count)].count)


def weeks(course: Scenario, calendar: Calendar) -> Iterable[Week]:
    """The calendar in weeks from now; a session belongs to the week in which it starts."""
    done, count = float(course.step), 0
    rest = iter([*calendar.sessions, None])
    session = next(rest)
    last = _end(course, calendar)
    while course.now + count * WEEK_S < last or session:
        begins = course.now + count * WEEK_S
        mine = []
        while session and session.start < begins + WEEK_S:
            mine.append(session)
            session = next(rest)
        steps = sum(one.steps for one in mine)
        done += steps
        hours = sum(one.end - one.start for one in mine) / 3600
        yield Week(begins, len(mine), hours, steps, min(1.0, round(done / course.target, 9)) if course.target else 0.0)
        count += 1


def shares(calendar: Calendar) -> Shares:
    """Shares of the calendar's time."""
    whole = max(1.0, calendar.trained_s + calendar.gap_s + sum(calendar.idle_s.values()))
    quota = calendar.idle_s.get("quota", 0.0) + calendar.idle_s.get("later", 0.0)
    asleep = calendar.idle_s.get("asleep", 0.0)
    return Shares(calendar.trained_s / whole, calendar.gap_s / whole, quota / whole, asleep / whole)


def helps(course: Scenario, count: int) -> list[Help]:
    """For each kind of account: how much sooner the median ends with one more. All use the same seeds."""
    number = max(5, min(MOST // 2, WHAT_IF // _cost(course, count)))
    base = _median(course, number)
    found = [
        Help(member.id, member.kind, _sooner(base, _median(replace(course, members=(*course.members, more)), number)))
        for member in _kinds(course.members)
        for more in [_another(member, course.now)]
    ]
    return sorted(found, key=lambda one: (-one.saves_s, one.like))


def intervals(
    course: Scenario, calendar: Calendar, every_steps: int, snapshot_s: float | None
) -> Iterable[CommitInterval]:
    """The cost of each commit interval.

    Expected loss: sessions that die, times half an interval or half of a session's training, if that is less.
    Stall: a snapshot for each commit.
    """
    steps = sum(one.steps for one in calendar.sessions)
    if not steps:
        return
    usual = {member.id: member.speeds.usual for member in course.members}
    pace = sum(one.steps / usual[one.account] for one in calendar.sessions) / steps
    most = max(0.0, calendar.trained_s / calendar.count - course.startup_s)
    rate = course.failure_rate
    if rate is None:
        rate = (course.died + PRIOR_DIED) / (course.died + course.lived + PRIOR_DIED + PRIOR_LIVED)
    for every in sorted({*INTERVALS, every_steps}):
        stall = None if snapshot_s is None else snapshot_s * steps / every
        yield CommitInterval(every, calendar.count * rate * min(every * pace, most) / 2, stall)


def _another(member: Member, now: float) -> Member:
    """A similar account that joins now with its full hours."""
    return replace(member, id=f"{member.id}+", left_s=None, not_before=now, given_s=0.0, sessions=0)


def _kinds(members: Iterable[Member]) -> list[Member]:
    """One member of each kind, the most frequent kind first."""
    found: dict[tuple[object, ...], list[Member]] = {}
    for member in members:
        key = member.kind, member.session_s, member.weekly_s, member.speeds, member.windows.windows, member.windows.zone
        found.setdefault(key, []).append(member)
    return [alike[0] for alike in sorted(found.values(), key=lambda alike: (-len(alike), alike[0].id))[:KINDS]]


def _median(course: Scenario, number: int) -> float:
    return spread([simulate(course, seed).finish for seed in range(number)]).p50


def _sooner(base: float, then: float) -> float:
    """Seconds saved. If only the new account makes the run finish, the saving counts from the horizon."""
    if then == math.inf:
        return 0.0
    return max(0.0, (HORIZON_S + then if base == math.inf else base) - then)


def _end(course: Scenario, calendar: Calendar) -> float:
    if calendar.finish < math.inf:
        return calendar.finish
    return calendar.sessions[-1].end if calendar.sessions else course.now


def _place(share: float, count: int) -> int:
    return max(0, math.ceil(share * count) - 1)
