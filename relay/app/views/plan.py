"""Formats a plan as a document and as text, or lists the numbers that it lacks; reads no store and no clock."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from relay.app.messages.resting import rest_of
from relay.app.messages.shared import untested_line
from relay.app.messages.wording import counted, duration, iso, printable
from relay.app.terminal.cells import Column, fold, table
from relay.people.availability import Unsure
from relay.people.participants import (
    GAP_S,
    SESSION_S,
    STARTUP_S,
    Assumed,
    Assumptions,
    Crew,
    LeftOut,
    LeftOutReason,
    PlanNote,
)
from relay.people.periods import WEEK_S
from relay.people.plan import CommitInterval, Forecast, Week, forecast
from relay.people.policy import Providers
from relay.people.presets import Preset
from relay.people.simulate import Calendar
from relay.people.status import RunStatus
from relay.people.team import Scenario
from relay.people.zones import known_as, wall

NARROWEST, WIDEST = 60, 200
LANES = 12
"""Accounts with a line of their own in the picture of sessions."""
ROWS = 60
"""Listed weeks; a longer plan shows the first and the last ones."""
NAME, BAR = 14, 20
"""Columns of an account's id, and of a week's bar."""


@dataclass(frozen=True)
class Look:
    """Marks and columns of a drawing. Without columns (no terminal) it has no bars."""

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
    """Return the whole plan."""
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
    """Draw the present, the range and its middle on one line."""
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
    """Draw one line for each account in the middle calendar, with a mark for each session."""
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
    """Draw one row for each week; a long plan shows the first and the last ones."""
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


def _cost(one: CommitInterval, dies: bool) -> str:
    costs = [("loses", one.lost_s)] if dies else []
    costs += [] if one.stall_s is None else [("stalls", one.stall_s)]
    return " and ".join(f"{what} {duration(s) if s >= 0.5 or not s else 'less than 1 s'}" for what, s in costs)


SCHEMA = "relay.plan/1"
ASSUMED: dict[Assumed | Unsure, str] = {
    Assumed.GAPS: f"{duration(GAP_S)} between two sessions are assumed: too few were measured.",
    Assumed.STARTUP: f"{duration(STARTUP_S)} from machine start to the lease are assumed (--startup-minutes).",
    Assumed.FAILURES: "No session has ended yet: one in twenty is assumed to die (--failure-rate).",
    Assumed.SPEED: "one session measured, so the range knows nothing of how speeds differ.",
    Assumed.STARTUP_ONLY: "no session is longer than the start-up, so nothing would be trained.",
    Unsure.UNSAID: "availability unknown, taken as always.",
    Unsure.UNREADABLE: "availability cannot be read, taken as always.",
    Unsure.NO_ZONE: "zone unknown, UTC assumed.",
    Assumed.HOURS: "no weekly hours known, so planned around the clock.",
    Assumed.RESET: "no reset known, so the week is taken to begin now.",
    Assumed.LENGTH: f"session length unknown, {duration(SESSION_S)} assumed.",
}

Plan = tuple[dict[str, Any], str]
"""relay.plan/1, and the same as text."""


def plan_of_preset(name: str, preset: Preset, course: Scenario, notes: Sequence[str], zone: str, look: Look) -> Plan:
    """Return a plan without a run."""
    found = forecast(course)
    assert found is not None, "a preset has accounts"
    title = f"Plan {name}: {preset.title}, {counted(course.target, 'step')}."
    answer = {"schema": SCHEMA, "preset": name, "state": "planned", **document(found, zone, notes)}
    return answer, draw(found, title, zone, notes, look)


def plan_of(view: RunStatus, providers: Providers, wish: Assumptions, zone: str, look: Look) -> Plan:
    """Return a run's plan as a document and as text, or the reason why there is none."""
    if rest := rest_of(view.state):
        why = f"Run {view.run}: {rest}"
        return {**_blank(view, view.phase), "missing": [why]}, why
    if view.phase == "halted":
        why = f"Run {view.run} is halted, so no date: {printable((view.state and view.state.halted) or '')}"
        return {**_blank(view, "halted"), "missing": [why]}, why
    if view.step >= view.target > 0:
        lacks = untested_line(view.untested)
        why = f"Run {view.run} has reached its target of {counted(view.target, 'step')}. {lacks}".rstrip()
        return _blank(view, "finished"), why
    crew = Crew(view, providers, wish)
    course = crew.course()
    notes = _notes(crew)
    found = forecast(course, wish.every_steps, _snapshot(view))
    if found is None:
        missing = _missing(view, crew)
        text = "\n".join([f"No date for run {view.run}: {missing[0]}", *missing[1:]])
        return {**_blank(view, "unknown"), "missing": missing, "left_out": _left_out(crew.left_out)}, text
    title = f"Run {view.run}: step {view.step:,} of {view.target:,}; planned: {listed([m.id for m in course.members])}."
    body = {**document(found, zone, notes), "left_out": _left_out(crew.left_out), "assumed": crew.assumed}
    return {"schema": SCHEMA, "run": view.run, "state": "planned", **body}, draw(found, title, zone, notes, look)


def _snapshot(view: RunStatus) -> float | None:
    """Return the seconds that one snapshot delayed training, from the newest commit; clamped, as it is untrusted."""
    told = view.state.metrics.get("snapshot_s") if view.state else None
    return None if told is None else min(max(0.0, told), 3600.0)


def document(found: Forecast, zone: str, notes: Sequence[str]) -> dict[str, Any]:
    """Return a forecast as the fields of relay.plan/1; durations are seconds."""
    course, middle = found.course, found.middle
    return {
        "now": iso(course.now),
        "zone": known_as(zone, course.now),
        "step": course.step,
        "target_steps": course.target,
        "accounts": len(course.members),
        "finish": {name: _moment(getattr(found.finish, name)) for name in ("p10", "p50", "p90")},
        "in_s": {name: _left(getattr(found.finish, name), course.now) for name in ("p10", "p50", "p90")},
        "calendars": found.calendars,
        "sessions": middle.count,
        "weeks": [_week_document(week) for week in found.weeks],
        "limit": found.limit,
        "shares": {key: round(value, 6) for key, value in vars(found.shares).items()},
        "one_more": [{"like": h.like, "kind": printable(h.kind), "saves_s": round(h.saves_s)} for h in found.helps],
        "intervals": [_interval_document(one) for one in found.intervals],
        "startup_s": course.startup_s,
        "gaps_s": [round(gap) for gap in course.gaps],
        "died": course.died,
        "lived": course.lived,
        "failure_rate": course.failure_rate,
        "missing": [],
        "notes": list(notes),
    }


def _week_document(week: Week) -> dict[str, Any]:
    return {
        "begins": iso(week.begins),
        "sessions": week.sessions,
        "hours": round(week.hours, 3),
        "steps": round(week.steps),
        "done": round(week.done, 6),
    }


def _interval_document(one: CommitInterval) -> dict[str, Any]:
    stall = None if one.stall_s is None else round(one.stall_s, 1)
    return {"steps": one.steps, "lost_s": round(one.lost_s, 1), "stall_s": stall}


def _blank(view: RunStatus, state: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "run": view.run,
        "state": state,
        "now": iso(view.now),
        "step": view.step,
        "target_steps": view.target,
        "finish": None,
        "missing": [],
    }


def _missing(view: RunStatus, crew: Crew) -> list[str]:
    """List the numbers that a plan lacks."""
    if not view.accounts:
        return ["no account is registered."]
    lines = ["no account can be planned."]
    lines += [f"  {one.row.id}: {reason(one)}" for one in crew.left_out[:10]]
    if len(crew.left_out) > 10:
        lines.append(f"  and {len(crew.left_out) - 10:,} more")
    if any(one.why is LeftOutReason.UNMEASURED for one in crew.left_out):
        lines.append("Speeds are never assumed: train one session, or plan with --steps-per-hour N.")
    return lines


def _notes(crew: Crew) -> list[str]:
    notes = [f"{one.row.id} is left out: {reason(one)}." for one in crew.left_out[:5]]
    if len(crew.left_out) > 5:
        notes.append(f"{len(crew.left_out) - 5:,} more accounts are left out (--json lists all).")
    if speed := crew.wish.steps_per_hour:
        unused = f"--steps-per-hour {speed:,.0f} is not used: the speed of every planned account is measured."
        assumed = f"ASSUMED, not measured: {speed:,.0f} steps an hour of {listed(crew.assumed)}."
        notes.insert(0, assumed if crew.assumed else unused)
    return notes + [note_text(note) for note in crew.notes]


def note_text(note: PlanNote) -> str:
    """Describe an assumption of the plan."""
    text = ASSUMED[note.about]
    return f"{listed(note.accounts)}: {text}" if note.accounts else text


def listed(names: Sequence[str], most: int = 4) -> str:
    """Return the first few names, and the number of the rest."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def reason(one: LeftOut) -> str:
    """Return why an account is left out."""
    match one.why:
        case LeftOutReason.UNCONFIRMED:
            return "its person has not confirmed to be a co-author of this run"
        case LeftOutReason.BY_HAND:
            return f"{one.row.state}, which ends by hand only"
        case LeftOutReason.UNMEASURED if one.row.gpu:
            return f"no session on {printable(one.row.gpu)} was measured"
        case LeftOutReason.UNMEASURED:
            return "no GPU declared, no session of its own measured"


def _left_out(found: Sequence[LeftOut]) -> list[dict[str, str]]:
    return [{"account": one.row.id, "why": reason(one)} for one in found]


def _moment(end: float) -> str | None:
    return iso(end) if end < math.inf else None


def _left(end: float, now: float) -> int | None:
    return round(end - now) if end < math.inf else None
