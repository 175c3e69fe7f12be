"""`guard`: run a command on a rented machine within limits of time, then delete the machine."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from relay.app.commands.command import Call, Ephemeral, subcommand
from relay.app.commands.common import App, say
from relay.app.guard.commands import ByCommands
from relay.app.guard.ending import StillRuns, end
from relay.app.guard.notes import last_session
from relay.app.guard.rented import Machine, Rented, checked, here, refuse_own_disk, stale
from relay.app.guard.standby import ROOT, Orders, Standby, stand_by
from relay.app.guard.watching import Command, Limits, Watch
from relay.core.errors import Exit, UsageError
from relay.core.folders import scratch_folder
from relay.core.lease.children import NoSuchProgram, forwarding, run_child, start
from relay.core.lease.signals import heeded
from relay.core.settings.origins import GUARD

Words = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND...", help="For example: -- bash multi_account_workflow.sh")
]
Train = Annotated[float, typer.Option("--train-minutes", help="Minutes from the first committed step.")]
Total = Annotated[float, typer.Option("--total-minutes", help="Minutes from the start to the machine's deletion.")]
Price = Annotated[float, typer.Option("--price", help="Price of the machine, US dollars an hour.")]
Expected = Annotated[
    str | None, typer.Option("--machine", help="The id that this machine should have.", show_default=False)
]
EndCommand = Annotated[str | None, typer.Option(help="Shell command that deletes this machine.", show_default=False)]
GoneCommand = Annotated[
    str | None, typer.Option(help="Shell command that exits with 0 once it is gone.", show_default=False)
]
MOST = 1e6
"""No machine is rented for so many minutes, nor costs so many dollars an hour."""
AGAIN_S = 30.0
"""Wait between two attempts to send a checkpoint that is only on this machine."""


@subcommand("")
def guard(
    call: Call,
    words: Words,
    train_minutes: Train,
    total_minutes: Total,
    price: Price,
    machine: Expected = None,
    end_command: EndCommand = None,
    gone_command: GoneCommand = None,
    ephemeral: Ephemeral = False,
) -> None:
    """Run a command on a rented machine within limits of time and money, then delete the machine."""
    limits = limits_of(train_minutes, total_minutes, price)
    resolved = call.settle({"ephemeral": True if ephemeral else None}, store=False)
    if not resolved.settings.ephemeral:
        for address in {resolved.ledger_url, resolved.checkpoint_url}:
            refuse_own_disk(address)
    app = call.app
    rented = machine_of(app, machine, end_command, gone_command)
    old = stale(rented.record, app.runtime.wall()) if isinstance(rented, Rented) else ""
    for warning in filter(None, (old, checked(rented))):
        say(f"GUARD: {warning} Delete it by hand if that fails: {rented.console}.")
    guarded(app, words, limits, rented)


def limits_of(train_minutes: float, total_minutes: float, price: float) -> Limits:
    """The limits. Raises UsageError (2) for a number that makes no sense."""
    for name, value, least in (("train-minutes", train_minutes, 1e-9), ("price", price, 0.0)):
        if not least <= value < MOST:
            raise UsageError(
                f"--{name} must be {'positive' if least else 'zero or more'} and below a million, not {value:g}."
            )
    if not train_minutes <= total_minutes < MOST:
        raise UsageError("--total-minutes must be below a million, and at least --train-minutes.")
    return Limits(train_minutes * 60, total_minutes * 60, price)


def machine_of(app: App, expected: str | None, end_command: str | None, gone_command: str | None) -> Machine:
    """This machine. Raises UsageError (2), NoMachine, WrongMachine (78)."""
    if (end_command is None) != (gone_command is None):
        raise UsageError("--end-command and --gone-command belong together: give both or none.")
    if end_command is not None and gone_command is not None:
        if not (end_command.strip() and gone_command.strip()):
            raise UsageError("--end-command and --gone-command need a command each; an empty one does nothing.")
        if expected is not None:
            raise UsageError("--machine is compared with a provider's id; commands find out their machine themselves.")
        return ByCommands(end_command, gone_command, app.environ, app.cwd)
    return here(app.environ, app.root, expected)


def guarded(app: App, words: list[str], limits: Limits, machine: Machine) -> None:
    """Run the command, then delete the machine, which ends this process.

    Raises StillRuns (78), and KeyboardInterrupt if a person keeps the machine.
    """
    runtime, started = app.runtime, app.started
    standby = stand_by(Orders.of(machine, started + limits.total_s), app.environ)
    with scratch_folder() as notes:
        try:
            code = run_watched(app, words, for_command(app.environ, machine, notes), limits, standby)
            say(f"The command ended with exit {code}.")
            if code == Exit.UPLOAD_FAILED:
                send_unsent(app, notes, started + limits.total_s)
            end(machine, runtime, say, lambda: f" {limits.spent(runtime.monotonic() - started)}.")
        except KeyboardInterrupt:
            standby.over()
            say(f"Interrupted: this machine STILL RUNS, ${limits.price:g} an hour. Delete it: {machine.console}.")
            raise
        except (NoSuchProgram, StillRuns) as error:
            standby.over()
            if isinstance(error, NoSuchProgram):
                say(f"Nothing was started: this machine STILL RUNS, ${limits.price:g} an hour: {machine.console}.")
            raise


def for_command(environ: Mapping[str, str], machine: Machine, notes: Path) -> dict[str, str]:
    """The environment of the command: without the key that deletes machines, with the folder for notes."""
    key = machine.record.key if isinstance(machine, Rented) else None
    return {name: value for name, value in environ.items() if name != key} | {GUARD: str(notes)}


def run_watched(app: App, words: list[str], environ: Mapping[str, str], limits: Limits, standby: Standby) -> int:
    """The exit code of the command, whose process group gets each signal of this process once."""
    running: list[Command] = []
    with forwarding(heeded(), lambda child, number: running[0].send(signal.Signals(number))) as started:
        child = start(words, environ, app.cwd, alone=True)
        running.append(Command(child, Path(environ[GUARD])))
        started(child)
        standby.follow(child.pid)
        return Watch(app.runtime, app.started, limits, running[0], say).until_over()


def send_unsent(app: App, notes: Path, until: float) -> None:
    """Send the checkpoint that is only on this machine, until the store has it or the machine's time is over."""
    session = last_session(notes)
    while session is not None and (left := until - app.runtime.monotonic()) > 0:
        say(f"The newest checkpoint is only on this machine. Sending it; {left / 60:.1f} min left.")
        path = f"{ROOT}:{app.environ.get('PYTHONPATH', '')}".rstrip(":")
        given = {"RELAY_PROJECT": session.project, "RELAY_BUDGET_MINUTES": f"{left / 60:.2f}", "PYTHONPATH": path}
        command = [sys.executable, "-m", "relay.app.cli", "push", "--run", session.run, "--account", session.account]
        if run_child(command, {**app.environ, **given}, Path(session.folder)) == Exit.OK:
            return
        app.runtime.sleep(AGAIN_S)
    say("UNSENT: the newest checkpoint is lost with this machine. The last committed step is safe.")
