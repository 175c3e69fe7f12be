"""`run` and `push`: one session on this machine, from its settings to its exit code."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace as with_parts
from typing import Annotated

import typer

from relay.app.commands.command import Call, Ephemeral, subcommand
from relay.app.commands.common import Aim, App, aim_of, goes_on_here, target_of, tell_secrets
from relay.app.commands.looking.planning import announce
from relay.app.commands.people.registering import for_person
from relay.app.commands.sessions.attaching import choice, holder_here, met
from relay.app.commands.sessions.here import followed
from relay.app.commands.sessions.importing import begin_or_check
from relay.app.commands.sessions.opening import SessionSetup
from relay.app.commands.sessions.outcomes import Ended, finish
from relay.app.machine.logs import close_log, open_log
from relay.app.machine.notices import watching
from relay.app.machine.place import refuse_rerun
from relay.app.machine.spot import ADDRESS, SpotQuery, spot_query
from relay.app.messages.endings import message
from relay.app.messages.events import line
from relay.app.messages.shared import target_line, untested_line
from relay.app.messages.webhook import address_of
from relay.app.messages.wording import counted
from relay.app.terminal.mishaps import explain, tell
from relay.app.terminal.progress import Display, Lines, display
from relay.core.checkpoint.compilecache import secret_of
from relay.core.clock import exit_now
from relay.core.errors import Exit, RelayError, UsageError
from relay.core.events import SessionEvent
from relay.core.lease.signals import StopSignal, heed, listening
from relay.core.ledger.atrest import refuse_halted
from relay.core.ledger.finaltest import asked_in_vain, untested
from relay.core.ledger.state import RunState
from relay.core.ledger.target import Rule, newest_change
from relay.core.resources import try_session
from relay.core.runs.opening import RunHandle, begins_by_itself, open_run, require_run
from relay.core.session.context import Context, Outcome
from relay.core.session.session import push as push_session
from relay.core.session.session import run_session
from relay.core.settings.config import Settings
from relay.core.settings.origins import confirms_coauthor

Target = Annotated[
    int | None,
    typer.Option(help="The run's target, for everybody: may only raise an existing run's.", show_default=False),
]
Until = Annotated[
    int | None, typer.Option(help="End this session at that step; the run's target stays.", show_default=False)
]
NewTarget = Annotated[
    int | None,
    typer.Option(min=1, help="Replace the target for everybody, also by a lower one; recorded.", show_default=False),
]
Budget = Annotated[float | None, typer.Option(help="Minutes from process start to process exit.", show_default=False)]
Every = Annotated[int | None, typer.Option(help="Steps between commits.", show_default=False)]
Wait = Annotated[float, typer.Option(metavar="MINUTES", help="Wait for a lease that is held.")]
Attach = Annotated[
    bool, typer.Option("--attach", help="Look on at this machine's own earlier session, if it still runs.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Have that session commit and end, then go on here.")]
New = Annotated[bool, typer.Option("--new", help="A new run is meant, however its name looks.")]
Cpu = Annotated[bool, typer.Option("--cpu", help="The CPU is meant, also for a task that wants a GPU.")]
Coauthor = Annotated[
    bool, typer.Option("--coauthor", help="I, whose account it is, co-author this run (also RELAY_COAUTHOR=1).")
]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="TRACKER", help="Also feed wandb, tensorboard or trackio.", show_default=False),
]
Note = Annotated[
    str, typer.Option(help="A remark on this session, recorded in the ledger for all participants.", show_default=False)
]
ProgressSeconds = Annotated[float, typer.Option(help="Seconds between plain progress lines.")]
RedactWebhook = Annotated[bool, typer.Option("--redact", help="RELAY_WEBHOOK is told ids in place of labels.")]


WORDS_S = 0.5
"""Longest time for the last output of a process, in seconds."""
CURSOR, STDERR = b"\x1b[?25h", 2
"""Shows the cursor again, which moving lines hide."""


@subcommand("overrides run account config")
def run(
    call: Call,
    target_steps: Target = None,
    until_step: Until = None,
    new_target: NewTarget = None,
    budget_minutes: Budget = None,
    checkpoint_every: Every = None,
    wait: Wait = 0.0,
    attach: Attach = False,
    replace: Replace = False,
    new: New = False,
    ephemeral: Ephemeral = False,
    cpu: Cpu = False,
    coauthor: Coauthor = False,
    track: Track = None,
    note: Note = "",
    progress_seconds: ProgressSeconds = 30.0,
    redact: RedactWebhook = False,
) -> None:
    """Train: take the lease, continue the newest checkpoint, commit, hand off."""
    if target_steps is not None and new_target is not None:
        raise UsageError("--target-steps raises the target and --new-target replaces it: give one of them.")
    flags = {
        "target_steps": target_steps,
        "until_step": until_step,
        "budget_minutes": budget_minutes,
        "checkpoint.every_steps": checkpoint_every,
        "ephemeral": True if ephemeral else None,
        "device": "cpu" if cpu else None,
        "trackers": ",".join(track) if track else None,
    }
    app, stop = call.app, StopSignal()
    app.streams.advisory = True
    shown = display(app.runtime, progress_seconds, app.plugin.measures.short)

    def heard(event: SessionEvent) -> None:
        if not attach:  # with --attach a signal ends only this process, not the session
            shown.tell(line(event))

    with closing(shown), listening(stop, app.runtime, leaving(app, call.as_json, shown), heard):
        resolved = for_person(app, call.settle(flags, joins=True))
        tell_secrets(app)
        webhook = address_of(app.environ)
        with watching(spot_look(app, resolved.settings), app.runtime, stop, shown.tell):
            said = coauthor or confirms_coauthor(app.environ)
            opening = SessionSetup(
                app, resolved, shown, stop, wait, new, new_target, said, note=note, earlier=choice(attach, replace)
            )
            ended = logged(app, opening, train)
    outcome = ended.outcome
    try:
        finish(app, ended, call.as_json, "relay.run/1")
    finally:
        if webhook and outcome.epoch and outcome.exit_code in (Exit.OK, Exit.HANDOFF):
            announce(app, resolved, webhook, redact)
        leave_trackers(opening, outcome)


def leave_trackers(opening: SessionSetup, outcome: Outcome) -> None:
    """Make sure that the process exits with its code, even if a tracker's library would wait for unsent data."""
    if opening.trackers and opening.trackers.left:
        atexit.register(exit_now, int(outcome.exit_code))  # runs before the handlers that a library registered


def spot_look(app: App, settings: Settings) -> SpotQuery | None:
    """Return the query for spot notices; None if there is none to ask. RELAY_SPOT_ADDRESS is for tests."""
    cloud = app.machine.cloud if settings.spot == "auto" else settings.spot
    if cloud is None or cloud == "off":
        return None
    return spot_query(cloud, app.runtime, app.environ.get("RELAY_SPOT_ADDRESS") or ADDRESS)


@subcommand("overrides run account config")
def push(call: Call) -> None:
    """Commit a checkpoint that an earlier session left on this machine; train nothing."""
    app, stop = call.app, StopSignal()
    app.streams.advisory = True
    with listening(stop, app.runtime, leaving(app, call.as_json)):
        resolved = for_person(app, call.settle(joins=True))
        opening = SessionSetup(app, resolved, Lines(0, app.runtime.monotonic, 30.0), stop, trains=False)
        ended = logged(app, opening, send)
    finish(app, ended, call.as_json, "relay.push/1")


def leaving(app: App, as_json: bool, shown: Display | None = None) -> Callable[[RelayError], None]:
    """Return the exit for a process that a signal could not end: prints the error and exits, even if a thread hangs."""

    def words(code: int, text: str) -> None:
        if shown is not None:
            shown.close()  # so that it does not draw over the message
        tell(code, text, None, as_json, app.secrets)

    def leave(error: RelayError) -> None:
        code, text = explain(error)
        app.runtime.spawn("last words", lambda: words(code, text)).join(WORDS_S)  # the stream may hang too
        app.runtime.spawn("cursor", show_cursor).join(WORDS_S)
        os._exit(code)

    return leave


def show_cursor() -> None:
    """Show the cursor. Writes directly to the terminal, because the wrapped streams may hang."""
    if os.isatty(STDERR):
        os.write(STDERR, CURSOR)


def train(opening: SessionSetup) -> Ended:
    """Train one session, or look on at one. Raises RelayError for a refusal before the lease."""
    refuse_rerun(opening.app.machine)
    opening.secret = secret_of(opening.app.environ, opening.resolved.settings.cache.allow)
    if (seen := met(opening)) is not None:
        return seen
    begin_or_check(opening)
    known = found(opening)
    state = known.view.state if known else None
    if known:
        opening.join(known)
    aim = aim_of(opening.app, opening.resolved, opening.new_target)
    if state and (
        text := nothing_to_do(state, aim.target(state), opening.resolved.settings.until_step, aim, opening.tests)
    ):
        return Ended(Outcome(Exit.OK, state.step, state.step), text + opening.unknown_account())
    opening.ask(state)
    if state and (change := newest_change(state)):
        opening.tell(target_line(change))
    opening.check()
    return prepared(opening, state, aim, run_session)


def nothing_to_do(state: RunState, target: int, until: int | None, aim: Aim, tests: Sequence[str]) -> str:
    """Return why the session has nothing to train; empty if it has, if it changes the target, or if it is to make
    those tests and one is missing."""
    if state.head is None or (aim.rule is Rule.REPLACE and target != state.target_steps):
        return ""
    if untested(state, tests, target):
        return ""
    if state.step >= target:
        text = (
            f"The target of {counted(target, 'step')} is reached. To train further, raise it for everybody with a "
            f"higher --target-steps."
        )
        return f"{text} {untested_line(asked_in_vain(state, target))}".rstrip()
    if until is not None and state.step >= until:
        return f"Step {state.step:,} is durable, and this session was to end at {until:,}. The target is {target:,}."
    return ""


def send(opening: SessionSetup) -> Ended:
    """Commit the checkpoints that only this machine has. Begins no run (P3): raises BadConfig (78) for a new one."""
    settings = opening.resolved.settings
    known = found(opening) or require_run(opening.stores, settings.project, settings.run)
    opening.join(known)
    opening.check()
    state = known.view.state
    return prepared(opening, state, Aim(target_of(opening.app, opening.resolved, state), Rule.KEEP), push_session)


def found(opening: SessionSetup) -> RunHandle | None:
    """Return the run, before anything is loaded; None if it has not begun.

    Raises BadData (65) if the run is halted for this machine, BadConfig (78) if only `init` can begin it.
    """
    settings = opening.resolved.settings
    opened = open_run if begins_by_itself(opening.stores.ledger) else require_run  # else `init` comes before `register`
    known = opened(opening.stores, settings.project, settings.run)
    if known is None:
        return None
    if not goes_on_here(opening.app, opening.resolved, known.view.state):
        refuse_halted(known.view.state)
    return known


def prepared(opening: SessionSetup, state: RunState | None, aim: Aim, act: Callable[[Context], Outcome]) -> Ended:
    """Load the workload, begin the run, check the account, then call `act`, which works under the lease."""
    target = aim.target(state)
    opening.shown.aim(target)
    try_session(opening.app.runtime)
    if not begins_by_itself(opening.stores.ledger):
        opening.account()
    workload = opening.workload(target, 0 if state is None else state.step)
    if state is None and (other := found(opening)):  # another session has begun it since
        opening.join(other)
        opening.check()
        workload = opening.workload(target, other.view.state.step)
    opened = opening.begin(workload)
    known = opening.account()
    context = opening.context(opened, known, workload, workload.config(), aim)
    if opening.trains:
        opening.describe(opened.view.state, workload, target)
    followed(context.listener, opening.here, opening.shown, opening.tell, known, context.plan.wait_s, target)
    heed(opening.stop)
    outcome = with_parts(act(context), startup=opening.startup.document())
    return Ended(outcome, message(outcome) + holder_here(opening, outcome))


def logged(app: App, opening: SessionSetup, act: Callable[[SessionSetup], Ended]) -> Ended:
    """Call `act` with a log file for this session."""
    settings = opening.resolved.settings
    folder = opening.resolved.path(settings.sync_dir) / "logs"
    opening.log = open_log(folder, f"{settings.run}_{settings.account}", app.runtime.wall(), app.secrets)
    app.streams.record()
    try:
        return act(opening)
    finally:
        opening.shown.close()
        if not (opening.stop.under_lease or opening.stop.at_once):
            opening.here.leave()  # otherwise the session did this; if it could not, others here must find it dead
        close_log()
