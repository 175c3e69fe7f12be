"""A plan as a document and as text, or which numbers it lacks; reads no store and no clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relay.app.messages.resting import rest_of
from relay.app.messages.wording import duration, iso, printable
from relay.app.views.plantext import Look, draw
from relay.people.availability import Unsure
from relay.people.participants import GAP_S, SESSION_S, STARTUP_S, Assumed, Assumptions, Crew, LeftOut, Note, Reason
from relay.people.plan import Forecast, Interval, Week, forecast
from relay.people.policy import Providers
from relay.people.presets import Preset
from relay.people.status import View
from relay.people.team import Scenario
from relay.people.zones import known_as

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
"""relay.plan/1, and the same for people."""


def plan_of_preset(name: str, preset: Preset, course: Scenario, notes: Sequence[str], zone: str, look: Look) -> Plan:
    """A plan of no run."""
    found = forecast(course)
    assert found is not None, "a preset has accounts"
    title = f"Plan {name}: {preset.title}, {course.target:,} steps."
    answer = {"schema": SCHEMA, "preset": name, "state": "planned", **document(found, zone, notes)}
    return answer, draw(found, title, zone, notes, look)


def plan_of(view: View, providers: Providers, wish: Assumptions, zone: str, look: Look) -> Plan:
    """A run's plan as a document and as text, or why there is none."""
    if rest := rest_of(view.state):
        why = f"Run {view.run}: {rest}"
        return {**_blank(view, view.phase), "missing": [why]}, why
    if view.phase == "halted":
        why = f"Run {view.run} is halted, so no date: {printable((view.state and view.state.halted) or '')}"
        return {**_blank(view, "halted"), "missing": [why]}, why
    if view.step >= view.target > 0:
        why = f"Run {view.run} has reached its target of {view.target:,} steps."
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


def _snapshot(view: View) -> float | None:
    """How long one held training up, as the newest commit told; strangers may have written it."""
    told = view.state.metrics.get("snapshot_s") if view.state else None
    return None if told is None else min(max(0.0, told), 3600.0)


def document(found: Forecast, zone: str, notes: Sequence[str]) -> dict[str, Any]:
    """A forecast in relay.plan/1; durations are seconds."""
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
        "weeks": [_week(week) for week in found.weeks],
        "limit": found.limit,
        "shares": {key: round(value, 6) for key, value in vars(found.shares).items()},
        "one_more": [{"like": h.like, "kind": printable(h.kind), "saves_s": round(h.saves_s)} for h in found.helps],
        "intervals": [_interval(one) for one in found.intervals],
        "startup_s": course.startup_s,
        "gaps_s": [round(gap) for gap in course.gaps],
        "died": course.died,
        "lived": course.lived,
        "failure_rate": course.failure_rate,
        "missing": [],
        "notes": list(notes),
    }


def _week(week: Week) -> dict[str, Any]:
    return {
        "begins": iso(week.begins),
        "sessions": week.sessions,
        "hours": round(week.hours, 3),
        "steps": round(week.steps),
        "done": round(week.done, 6),
    }


def _interval(one: Interval) -> dict[str, Any]:
    stall = None if one.stall_s is None else round(one.stall_s, 1)
    return {"steps": one.steps, "lost_s": round(one.lost_s, 1), "stall_s": stall}


def _blank(view: View, state: str) -> dict[str, Any]:
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


def _missing(view: View, crew: Crew) -> list[str]:
    """Which numbers a plan lacks."""
    if not view.accounts:
        return ["no account is registered."]
    lines = ["no account can be planned."]
    lines += [f"  {one.row.id}: {reason(one)}" for one in crew.left_out[:10]]
    if len(crew.left_out) > 10:
        lines.append(f"  and {len(crew.left_out) - 10:,} more")
    if any(one.why is Reason.UNMEASURED for one in crew.left_out):
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


def note_text(note: Note) -> str:
    """What the reader should know of something that was taken for granted."""
    text = ASSUMED[note.about]
    return f"{listed(note.accounts)}: {text}" if note.accounts else text


def listed(names: Sequence[str], most: int = 4) -> str:
    """The first few, and how many more."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def reason(one: LeftOut) -> str:
    """Why an account is left out."""
    match one.why:
        case Reason.UNCONFIRMED:
            return "its person has not confirmed to be a co-author of this run"
        case Reason.BY_HAND:
            return f"{one.row.state}, which ends by hand only"
        case Reason.UNMEASURED if one.row.gpu:
            return f"no session on {printable(one.row.gpu)} was measured"
        case Reason.UNMEASURED:
            return "no GPU declared, no session of its own measured"


def _left_out(found: Sequence[LeftOut]) -> list[dict[str, str]]:
    return [{"account": one.row.id, "why": reason(one)} for one in found]


def _moment(end: float) -> str | None:
    return iso(end) if end < math.inf else None


def _left(end: float, now: float) -> int | None:
    return round(end - now) if end < math.inf else None
