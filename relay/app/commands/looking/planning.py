"""`next` and `plan`: propose the next account and forecast the end of the run; they write nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, say, speaks_utf8
from relay.app.commands.reading import look
from relay.app.commands.studies import opened, runs_reader
from relay.app.messages.advice import shell
from relay.app.messages.handoff import Reader, announcement, propose
from relay.app.messages.webhook import send
from relay.app.providers import shipped
from relay.app.redact import redact, without_secrets
from relay.app.studies.picking import Passed, turns
from relay.app.studies.table import about
from relay.app.terminal.paragraphs import terminal_width
from relay.app.views.plan import Look, plan_of, plan_of_preset
from relay.core.errors import UsageError
from relay.core.settings.config import Resolved
from relay.people.participants import Assumptions, Crew
from relay.people.presets import preset as named_preset
from relay.people.status import RunStatus
from relay.people.turns import order
from relay.people.zones import is_zone, reader
from relay.people.zones import zone as known_zone

ZoneOption = Annotated[
    str | None, typer.Option("--zone", help="Show times in this time zone, e.g. Europe/Berlin.", show_default=False)
]


@subcommand("overrides run account config redact")
def next_account(
    call: Call,
    study: Annotated[
        str | None, typer.Option(help="Who could train which run of a study.", metavar="STUDY", show_default=False)
    ] = None,
    zone: ZoneOption = None,
) -> Answer:
    """Say whose turn it is and why, with the command and a message to send them; who else could, and what bars them."""
    if study is not None:
        return next_of_study(call, study)
    me, view = call.resolved.given_account, look(call.app, call.resolved)
    reader = Reader(reader_zone(call.app, view, me, zone), me, call.redact)
    turn = propose(view, call.resolved.variables, shipped(), reader)
    if turn.account and (line := shipped().named(turn.account.provider).stale(view.now)):
        say(f"{line}.")
    return Answer(turn.document(), turn.text())


def next_of_study(call: Call, study: str) -> Answer:
    """Give each account that can begin now the next run that is free, in the order of turns."""
    of = opened(call, study, call.overrides)
    seen = runs_reader(of.stores(), of.design.project)(())
    found = turns(of.design, of.design.runs(of.points), seen, Passed())
    known = replace(call, overrides=[*of.relay, f"project={of.design.project}"])
    able = order(Crew(known.view(of_people=True), shipped())).now
    where = "".join(f"{name}={redact(value)} " for name, value in of.resolved.addresses.items())
    rows, lines = list[dict[str, Any]](), list[str]()
    for one, turn in zip(able, found.free, strict=False):
        step = turn.state.step if turn.state else 0
        line = where + shell("study run", None, study, "--account", one.row.id)
        rows.append({"account": one.row.id, "run": turn.run.name, "step": step, "command": line})
        lines.append(f"{one.row.id}: {turn.run.name}, step {step:,} of {turn.run.point.steps:,}\n  {line}")
    free = [turn.run.name for turn in found.free[len(rows) :]]
    if not rows:
        lines.append("No account can begin a run of this study now." if free else "No run of this study is free.")
    lines += [f"Also free: {', '.join(free)}."] if free else []
    document = {"schema": "relay.study-next/1", **about(of.design), "turns": rows, "free": free}
    left = [one.document() for one in found.left]
    return Answer({**document, "left": left}, "\n".join([*lines, *found.lines()]))


@subcommand()
def plan(
    call: Call,
    preset: Annotated[str | None, typer.Option(help="A plan of no run: guide or h100.", show_default=False)] = None,
    steps_per_hour: Annotated[
        float | None,
        typer.Option(min=0.001, max=1e9, help="Assume this speed where none was measured.", show_default=False),
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
) -> Answer:
    """Say when the run will be done, as a range over simulated calendars, and what limits it."""
    _check_finite(steps_per_hour, startup_minutes, failure_rate)
    startup_s = None if startup_minutes is None else startup_minutes * 60
    shown = Look(ascii_only or not speaks_utf8(), terminal_width())
    if preset is not None:
        chosen = named_preset(preset)
        course = chosen.course(call.app.runtime.wall(), steps_per_hour, startup_s, failure_rate)
        notes = chosen.told(steps_per_hour, startup_s, failure_rate)
        zone = reader_zone(call.app, None, None, zone)
        return Answer(*plan_of_preset(preset, chosen, course, notes, zone, shown))
    every = call.settings.checkpoint
    wish = Assumptions(steps_per_hour, startup_s, failure_rate, every.every_steps, every.every_minutes * 60)
    view = call.view()
    zone = reader_zone(call.app, view, call.resolved.given_account, zone)
    return Answer(*plan_of(view, shipped(), wish, zone, shown))


def _check_finite(*numbers: float | None) -> None:
    """Raises UsageError (2) for `nan` and infinity, which the bounds of an option accept."""
    if not all(number is None or math.isfinite(number) for number in numbers):
        raise UsageError("A speed, a duration and a share must be finite numbers.")


def announce(app: App, resolved: Resolved[Any], url: str, redacted: bool) -> None:
    """Send the next account to the webhook. A failure is printed and has no other effect."""

    def words() -> dict[str, Any]:
        view, me = look(app, resolved), resolved.settings.account
        reader = Reader(reader_zone(app, view, me, None), redacted=redacted, chat=True)
        told = announcement(view, propose(view, resolved.variables, shipped(), reader, ends=False), me)
        found: dict[str, Any] = without_secrets(told, app.secrets)
        return found

    if trouble := send(url, words, app.runtime):
        say(f"The webhook was not told of the hand-off: {trouble}. Nothing else depends on it.")


def reader_zone(app: App, view: RunStatus | None, account: str | None, asked: str | None) -> str:
    """Return the first zone that is set: the one asked for, RELAY_ZONE, the account's, the reader's.

    Raises BadConfig (78) for an unknown zone in the first two.
    """
    if wanted := asked or app.environ.get("RELAY_ZONE"):
        known_zone(wanted)
        return wanted
    row = next((row for row in view.accounts if row.id == account), None) if view else None
    return row.zone if row and row.zone and is_zone(row.zone) else reader()
