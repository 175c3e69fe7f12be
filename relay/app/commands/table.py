"""Maps the words of the command line to the commands."""

from __future__ import annotations

from collections.abc import Callable

import typer

from relay.app.commands import demonstration, settings
from relay.app.commands.looking import checks, dashboard, planning, plotting, reports, trackers
from relay.app.commands.people import accounts, registering
from relay.app.commands.runs import forking, repairing, shelf, upkeep
from relay.app.commands.sessions import importing, running, scripts
from relay.app.commands.weights import evaluating, files, showing

COMMANDS: dict[str, Callable[..., None]] = {
    "register": registering.register,
    "report": reports.report,
    "status": reports.status,
    "next": planning.next_account,
    "plan": planning.plan,
    "dashboard": dashboard.dashboard,
    "plot": plotting.plot,
    "prepare": files.prepare,
    "run": running.run,
    "push": running.push,
    "exec": scripts.exec_script,
    "check-loop": scripts.check_loop,
    "stop": upkeep.stop,
    "resume": upkeep.resume,
    "verify": checks.verify,
    "doctor": checks.doctor,
    "repair": repairing.repair,
    "evaluate": evaluating.evaluate,
    "examples": showing.examples,
    "export": files.export,
    "init": upkeep.init,
    "invite": upkeep.invite,
    "fork": forking.fork,
    "import": importing.import_weights,
    "gc": upkeep.gc,
    "track": trackers.track,
    "demo": demonstration.demo,
}
RUNS: dict[str, Callable[..., None]] = {
    "list": shelf.list_runs,
    "archive": shelf.archive,
    "unarchive": shelf.unarchive,
    "delete": shelf.delete,
}
ACCOUNTS: dict[str, Callable[..., None]] = {
    "list": accounts.list_accounts,
    "show": accounts.show,
    "edit": accounts.edit,
    "rename": accounts.rename,
    "mark": accounts.mark,
    "pause": accounts.pause,
    "retire": accounts.retire,
    "quota": accounts.quota,
    "confirm": accounts.confirm,
    "forget": accounts.forget,
}


def attach(app: typer.Typer) -> None:
    """Add every command to `app`."""
    for name, command in COMMANDS.items():
        app.command(name)(command)
    of_runs = typer.Typer(no_args_is_help=True, help="Look at all runs of a store; archive or delete one.")
    for name, command in RUNS.items():
        of_runs.command(name)(command)
    app.add_typer(of_runs, name="runs")
    of_accounts = typer.Typer(no_args_is_help=True, help="Look at and change accounts.")
    for name, command in ACCOUNTS.items():
        of_accounts.command(name)(command)
    app.add_typer(of_accounts, name="accounts")
    of_settings = typer.Typer(no_args_is_help=True, help="Look at the settings.")
    of_settings.command("show")(settings.show)
    app.add_typer(of_settings, name="config")
