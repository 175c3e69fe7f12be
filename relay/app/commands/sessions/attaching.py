"""`run` while an earlier session of the same account runs on this machine: reports, shows or ends that session."""

from __future__ import annotations

from relay.app.commands.sessions.here import Choice
from relay.app.commands.sessions.opening import SessionSetup
from relay.app.commands.sessions.outcomes import Ended
from relay.app.machine.mirror import Onlooker
from relay.app.messages.advice import command
from relay.app.messages.wording import duration
from relay.core.errors import Exit, LeaseHeld, RelayError, UsageError
from relay.core.lease.host import Earlier
from relay.core.lease.signals import Interrupted, heed
from relay.core.ledger import frozen
from relay.core.ledger.state import RunState
from relay.core.runs.opening import open_run
from relay.core.session.context import Outcome
from relay.core.session.ends import ENDS, FAILURES

LOOK_S = 0.5
PATIENCE_S = 900.0
"""Longest wait in seconds for another session's last commit, with a margin over the time that it may take."""
CODES = {
    **{reason: code for code, reason in ENDS.values()},
    **{reason: code for code, reason in FAILURES.items()},
    **{frozen.SILENT: Exit.FENCED, frozen.LATE: Exit.FENCED, frozen.CRASHED: Exit.BUG},
}
"""The exit code of a session, by the end that it recorded or that another session recorded for it."""


class Detached(RelayError):
    """The user stopped looking on with Ctrl-C."""

    exit_code = Exit.SIGINT


def choice(attach: bool, replace: bool) -> Choice:
    """Return the chosen option. Raises UsageError (2) if both are given."""
    if attach and replace:
        raise UsageError("--attach looks on and --replace ends what it would look at: give one of them.")
    return "attach" if attach else "replace" if replace else "refuse"


def choices(opening: SessionSetup, other: Earlier) -> str:
    """Describe the other process and the two commands to continue."""
    settings = opening.resolved.settings
    words = ("--account", settings.account)
    attach, replace = (command("run", settings.run, *words, flag) for flag in ("--attach", "--replace"))
    now = opening.here.now(other)
    at = f", at step {now.step:,} of {now.target:,}" if now and now.step else ""
    return (
        f"It is this machine's own earlier session of {settings.account}: {process(other)}{at}. See how it goes with "
        f"`{attach}` (Ctrl-C leaves it running), or have it commit and end and go on here with `{replace}`."
    )


def process(other: Earlier) -> str:
    """Return for example `process 123 (started 5 min ago)`."""
    if not other.reachable:
        return f"process {other.who.pid} of another container that shares this home"
    return f"process {other.who.pid} (started {duration(other.age_s)} ago)"


def met(opening: SessionSetup) -> Ended | None:
    """Handle this machine's own earlier session as the options ask. None: continue and train.

    Raises LeaseHeld (73) with both choices if no option was given and the wait is 0.
    """
    if opening.earlier == "attach":
        return attached(opening, opening.here.earlier())
    opening.here.enrol()
    other = opening.here.earlier()
    if other is None:
        return None
    if opening.earlier == "replace":
        replace(opening, other)
    elif opening.wait_minutes > 0:
        opening.tell(choices(opening, other))
    else:
        refuse(opening, other)
    return None


def holder_here(opening: SessionSetup, outcome: Outcome) -> str:
    """Return both choices for a refusal's end if this machine's own earlier session holds the lease; empty if not."""
    other = opening.here.earlier() if outcome.exit_code is Exit.LEASE_HELD else None
    return "" if other is None else f" {choices(opening, other)}"


def refuse(opening: SessionSetup, other: Earlier) -> None:
    """Raises LeaseHeld (73) with both choices."""
    settings = opening.resolved.settings
    raise LeaseHeld(f"Run {settings.project}/{settings.run} is being trained already. {choices(opening, other)}")


def attached(opening: SessionSetup, other: Earlier | None) -> Ended:
    """Show the other session's progress until it ends; changes nothing. Raises Detached (130)."""
    settings, state = opening.resolved.settings, newest(opening)
    step, epoch = (state.step, state.epoch) if state else (0, 0)
    if state and state.link and state.link.end != frozen.OPEN:
        epoch += 1  # the other session waits for the lease
    if other is None:
        text = f"No session of {settings.account} trains {settings.run} on this machine: nothing to look on at."
        return Ended(Outcome(Exit.OK, step, step), text)
    look_on(opening, other)
    return ended(opening, other, epoch)


def look_on(opening: SessionSetup, other: Earlier) -> None:
    """Show progress until the other session has ended. Raises Detached (130)."""
    here = opening.here
    opening.shown.tell(f"Looking on at {process(other)}. Ctrl-C leaves it running.")
    shown = opening.shown
    onlooker = Onlooker(here.locks.path(other.session, "now"), shown.step, shown.tell, shown.aim)
    while here.neighbors.lives(other):
        onlooker.look()
        try:
            heed(opening.stop)
        except Interrupted as interrupted:
            text = f"Detached. Process {other.who.pid} goes on training {here.settings.run}."
            raise Detached(text) from interrupted
        opening.app.runtime.sleep(LOOK_S)


def newest(opening: SessionSetup) -> RunState | None:
    """Return the current state of the run; None before it began. Raises StorageUnreachable (69)."""
    settings = opening.resolved.settings
    known = open_run(opening.stores, settings.project, settings.run)
    return known.view.state if known else None


def ended(opening: SessionSetup, other: Earlier, epoch: int) -> Ended:
    """Return how the other session ended, from the ledger.

    `epoch` is the oldest that it can have. A session that replaced it may hold the lease by now.
    """
    state = newest(opening)
    links = state.links if state else ()
    link = next((link for link in links if link.epoch >= epoch and link.account == other.who.account), None)
    step = state.step if state else None
    name = f"The session of process {other.who.pid}"
    if link is None:
        return Ended(Outcome(Exit.HANDOFF, step, step or 0), f"{name} ended before it had the lease.")
    if link.end == frozen.OPEN:
        text = f"{name} is gone without a word. The next `run` here takes over at once and commits what it left."
        return Ended(Outcome(Exit.UPLOAD_FAILED, step, link.from_step), text)
    return Ended(Outcome(code_of(link.end), step, link.from_step), f"{name} ended: {link.end}.")


def code_of(end: str) -> Exit:
    """Return the exit code of a session from the end in its link."""
    planned = end.startswith(frozen.SPOT_NOTICE) and not end.endswith(frozen.NOT_SENT)
    return Exit.HANDOFF if planned else CODES.get(end, Exit.UPLOAD_FAILED)


def replace(opening: SessionSetup, other: Earlier) -> None:
    """Ask the other session to commit and end, and wait until it has. Raises LeaseHeld (73) if it does not."""
    runtime, began = opening.app.runtime, opening.app.runtime.monotonic()
    if not opening.here.neighbors.ask_to_end(other):
        if not opening.here.neighbors.lives(other):
            return
        raise LeaseHeld(f"{process(other).capitalize()} cannot be asked from here. Stop that container, or wait.")
    opening.tell(f"Asked {process(other)} to commit and end; going on when it has.")
    while opening.here.neighbors.lives(other):
        heed(opening.stop)
        gone = runtime.monotonic() - began
        if gone > PATIENCE_S:
            raise LeaseHeld(
                f"Process {other.who.pid} was asked to end {duration(gone)} ago and still runs: it may hang. What it "
                f"committed is safe. End it with `kill -9 {other.who.pid}` and run this again, or run with "
                f"`--wait 5`, which takes over from one that gives no sign of life."
            )
        opening.shown.transfer(f"process {other.who.pid} commits and ends: {duration(gone)} so far")
        runtime.sleep(LOOK_S)
    opening.shown.transfer("")
