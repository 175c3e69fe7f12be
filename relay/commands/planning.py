"""`next` and `plan`: whose turn it is, and when the run will be done; they write nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from relay.availability import zone as known_zone
from relay.commands.common import (
    AccountOption,
    App,
    ConfigOption,
    JsonOption,
    Overrides,
    RunOption,
    emit,
    speaks_utf8,
    surroundings,
)
from relay.commands.reading import look
from relay.crew import Crew, LeftOut, Wish, listed
from relay.errors import BadConfig, UsageError
from relay.handoff import Reader, propose
from relay.paragraphs import terminal_width
from relay.plan import Forecast, forecast
from relay.plan_presets import preset as named_preset
from relay.plan_text import Look, draw
from relay.policy import shipped
from relay.redact import printable
from relay.status import View
from relay.wording import iso

ZoneOption = Annotated[
    str | None, typer.Option("--zone", help="Show times in this time zone, e.g. Europe/Berlin.", show_default=False)
]
RedactOption = Annotated[bool, typer.Option("--redact", help="Ids in place of labels.")]


def next_account(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    account: AccountOption = None,
    config: ConfigOption = None,
    zone: ZoneOption = None,
    redact: RedactOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say whose turn it is and why, with the command and a message to send them; who else could, and what bars them."""
    app = surroundings(context)
    resolved = app.settle(overrides, config, {"run": run, "account": account})
    view = look(app, resolved)
    me = resolved.settings.account if "account" in resolved.origins else None
    reader = Reader(reader_zone(app, view, me, zone), me, redact)
    turn = propose(view, resolved.addresses, shipped(), reader)
    emit(as_json, turn.document(), turn.text())


def plan(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    preset: Annotated[str | None, typer.Option(help="A plan of no run: guide or h100.", show_default=False)] = None,
    steps_per_hour: Annotated[
        float | None, typer.Option(min=0.001, help="Assume this speed where none was measured.", show_default=False)
    ] = None,
    startup_minutes: Annotated[
        float | None, typer.Option(min=0, max=600, help="From machine start to the lease.", show_default=False)
    ] = None,
    failure_rate: Annotated[
        float | None,
        typer.Option(
            min=0, max=0.99, help="Share of sessions that die, in place of the history's.", show_default=False
        ),
    ] = None,
    zone: ZoneOption = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw in plain ASCII.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say when the run will be done, as a range over simulated calendars, and what limits it."""
    app = surroundings(context)
    for number in (steps_per_hour, startup_minutes, failure_rate):
        if number is not None and not math.isfinite(number):
            raise UsageError("A speed, a duration and a share must be finite numbers.")
    startup_s = None if startup_minutes is None else startup_minutes * 60
    shown = Look(ascii_only or not speaks_utf8(), terminal_width())
    if preset is not None:
        chosen = named_preset(preset)
        course = chosen.course(app.runtime.wall(), steps_per_hour, startup_s, failure_rate)
        notes = _changed(chosen.notes, steps_per_hour, startup_s, failure_rate)
        where = reader_zone(app, None, None, zone)
        found = forecast(course)
        assert found is not None, "a preset has accounts"
        emit(
            as_json,
            {"schema": "relay.plan/1", "preset": preset, "state": "planned", **document(found, where, notes)},
            draw(found, f"Plan {preset}: {chosen.title}, {course.target:,} steps.", where, notes, shown),
        )
        return
    resolved = app.settle(overrides, config, {"run": run})
    wish = Wish(
        steps_per_hour,
        startup_s,
        failure_rate,
        resolved.settings.checkpoint.every_steps,
        resolved.settings.checkpoint.every_minutes * 60,
    )
    view = look(app, resolved)
    me = resolved.settings.account if "account" in resolved.origins else None
    answer, text = plan_of(view, wish, reader_zone(app, view, me, zone), shown)
    emit(as_json, {"schema": "relay.plan/1", "run": view.run, "state": answer.pop("state"), **answer}, text)


def plan_of(view: View, wish: Wish, zone: str, shown: Look) -> tuple[dict[str, Any], str]:
    """A run's plan as a document and as text, or why there is none."""
    if view.phase == "halted":
        why = f"Run {view.run} is halted, so no date: {printable((view.state and view.state.halted) or '')}"
        return {**_blank(view, "halted"), "missing": [why]}, why
    if view.step >= view.target > 0:
        why = f"Run {view.run} has reached its target of {view.target:,} steps."
        return _blank(view, "finished"), why
    crew = Crew(view, shipped(), wish)
    course = crew.course()
    notes = _notes(crew)
    metrics = view.state.metrics if view.state else {}
    found = forecast(course, wish.every_steps, metrics.get("snapshot_s"))
    if found is None:
        missing = _missing(view, crew)
        text = "\n".join([f"No date for run {view.run}: {missing[0]}", *missing[1:]])
        return {**_blank(view, "unknown"), "missing": missing, "left_out": _left_out(crew.left_out)}, text
    title = f"Run {view.run}: step {view.step:,} of {view.target:,}; planned: {listed([m.id for m in course.members])}."
    body = {**document(found, zone, notes), "left_out": _left_out(crew.left_out), "assumed": crew.assumed}
    return {"state": "planned", **body}, draw(found, title, zone, notes, shown)


def document(found: Forecast, zone: str, notes: Sequence[str]) -> dict[str, Any]:
    """A forecast in relay.plan/1; durations are seconds."""
    course, middle = found.course, found.middle
    return {
        "now": iso(course.now),
        "zone": zone,
        "step": course.step,
        "target_steps": course.target,
        "accounts": len(course.members),
        "finish": {name: _moment(getattr(found.finish, name)) for name in ("p10", "p50", "p90")},
        "in_s": {name: _left(getattr(found.finish, name), course.now) for name in ("p10", "p50", "p90")},
        "calendars": found.calendars,
        "sessions": middle.count,
        "weeks": [
            {
                "begins": iso(week.begins),
                "sessions": week.sessions,
                "hours": round(week.hours, 3),
                "steps": round(week.steps),
                "done": round(week.done, 6),
            }
            for week in found.weeks
        ],
        "limit": found.shares.limit,
        "shares": {key: round(value, 6) for key, value in vars(found.shares).items()},
        "one_more": [{"like": h.like, "kind": h.kind, "saves_s": round(h.saves_s)} for h in found.helps],
        "intervals": [
            {
                "steps": one.steps,
                "lost_s": round(one.lost_s, 1),
                "stall_s": None if one.stall_s is None else round(one.stall_s, 1),
            }
            for one in found.intervals
        ],
        "startup_s": course.startup_s,
        "gaps_s": [round(gap) for gap in course.gaps],
        "died": course.died,
        "lived": course.lived,
        "failure_rate": course.failure_rate,
        "missing": [],
        "notes": list(notes),
    }


def reader_zone(app: App, view: View | None, account: str | None, asked: str | None) -> str:
    """As asked, else the account's own, else the environment's TZ, else UTC. Raises BadConfig (78) for one asked."""
    if asked:
        known_zone(asked)
        return asked
    row = next((row for row in view.accounts if row.id == account), None) if view else None
    for name in (row.zone if row else None, app.environ.get("TZ")):
        if name and _is_zone(name):
            return name
    return "UTC"


def _is_zone(name: str) -> bool:
    try:
        known_zone(name)
    except BadConfig:
        return False
    return True


def _blank(view: View, state: str) -> dict[str, Any]:
    return {
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
    lines += [f"  {one.account}: {one.why}" for one in crew.left_out[:10]]
    if len(crew.left_out) > 10:
        lines.append(f"  and {len(crew.left_out) - 10:,} more")
    if any("measured" in one.why for one in crew.left_out):
        lines.append("Speeds are never assumed: train one session, or plan with --steps-per-hour N.")
    return lines


def _notes(crew: Crew) -> list[str]:
    notes = [f"{one.account} is left out: {one.why}." for one in crew.left_out[:5]]
    if len(crew.left_out) > 5:
        notes.append(f"{len(crew.left_out) - 5:,} more accounts are left out (--json lists all).")
    if crew.assumed and crew.wish.steps_per_hour:
        notes.insert(
            0, f"ASSUMED, not measured: {crew.wish.steps_per_hour:,.0f} steps an hour of {listed(crew.assumed)}."
        )
    return notes + crew.notes


def _left_out(found: Sequence[LeftOut]) -> list[dict[str, str]]:
    return [{"account": one.account, "why": one.why} for one in found]


def _changed(notes: Sequence[str], rate: float | None, startup_s: float | None, fails: float | None) -> list[str]:
    """A preset's notes, and what replaces its numbers."""
    said = [*notes]
    if rate is not None:
        said.append(f"ASSUMED in place of its speed: {rate:,.0f} steps an hour.")
    if startup_s is not None:
        said.append(f"Set in place of its overhead: {startup_s / 60:g} min of each hour train nothing.")
    if fails is not None:
        said.append(f"Set in place of its failures: {fails:.0%} of sessions die.")
    return said


def _moment(end: float) -> str | None:
    return iso(end) if end < math.inf else None


def _left(end: float, now: float) -> int | None:
    return round(end - now) if end < math.inf else None
