"""Maps the words of the command line to the commands."""

from __future__ import annotations

from collections.abc import Callable

import typer

from relay.app.commands import cloud, demonstration, settings, signingin, studies
from relay.app.commands.looking import checks, comparing, dashboard, environment, planning, plotting, reports, trackers
from relay.app.commands.mistyped import Group
from relay.app.commands.people import accounts, registering
from relay.app.commands.runs import forking, repairing, shelf, upkeep
from relay.app.commands.sessions import guarding, importing, running, scripts
from relay.app.commands.weights import competing, evaluating, files, showing

TRAIN, FOLLOW, PEOPLE, STORE, WEIGHTS = (
    "Train on this machine",
    "Follow a run",
    "People",
    "Runs and stores",
    "Weights",
)
GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    TRAIN: {
        "prepare": files.prepare,
        "run": running.run,
        "push": running.push,
        "exec": scripts.exec_script,
        "check-loop": scripts.check_loop,
        "guard": guarding.guard,
        "stop": upkeep.stop,
        "unhalt": upkeep.unhalt,
        "doctor": checks.doctor,
        "env": environment.env,
        "demo": demonstration.demo,
    },
    FOLLOW: {
        "report": reports.report,
        "status": reports.status,
        "next": planning.next_account,
        "plan": planning.plan,
        "dashboard": dashboard.dashboard,
        "plot": plotting.plot,
        "compare": comparing.compare,
        "track": trackers.track,
    },
    PEOPLE: {"register": registering.register, "invite": upkeep.invite},
    STORE: {
        "login": signingin.login,
        "init": upkeep.init,
        "fork": forking.fork,
        "import": importing.import_weights,
        "verify": checks.verify,
        "repair": repairing.repair,
        "gc": upkeep.gc,
    },
    WEIGHTS: {"evaluate": evaluating.evaluate, "examples": showing.examples, "export": files.export},
}
"""The commands by the panel of the help that lists them."""
COMMANDS = {name: body for group in GROUPS.values() for name, body in group.items()}
FORMER = {"resume": upkeep.unhalt}
"""Earlier names, which still work and are not listed."""
EXAMPLES: dict[str, tuple[str, str]] = {
    TRAIN: ("run --budget-minutes 50", "run --run second --account account_2"),
    FOLLOW: ("report --watch", "next"),
    PEOPLE: ('register account_1 "John\'s Colab"', "accounts pause account_1"),
    STORE: ("verify", "fork --to second_try lr=0.0001"),
    WEIGHTS: ("evaluate", "export weights"),
}
"""Two command lines for each panel."""
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
ARC: dict[str, Callable[..., None]] = {
    "solve": competing.solve,
    "check": competing.check,
    "score": competing.score,
    "bundle": competing.bundle,
    "tour": competing.tour,
}


CLOUD: dict[str, Callable[..., None]] = {
    "list": cloud.list_machines,
    "recipe": cloud.recipe,
    "prices": cloud.show_prices,
}
STUDY: dict[str, Callable[..., None]] = {
    "check": studies.check,
    "list": studies.list_study,
    "run": studies.run_study,
    "report": studies.report_study,
    "plot": studies.plot_study,
    "compare": studies.compare_study,
}


def attach(app: typer.Typer) -> None:
    """Add every command to `app`."""
    for panel, group in GROUPS.items():
        for name, command in group.items():
            app.command(name, rich_help_panel=panel)(command)
    for name, command in FORMER.items():
        app.command(name, hidden=True)(command)
    of_runs = typer.Typer(cls=Group, no_args_is_help=True, help="Look at all runs of a store; archive or delete one.")
    for name, command in RUNS.items():
        of_runs.command(name)(command)
    app.add_typer(of_runs, name="runs", rich_help_panel=STORE)
    of_accounts = typer.Typer(cls=Group, no_args_is_help=True, help="Look at and change accounts.")
    for name, command in ACCOUNTS.items():
        of_accounts.command(name)(command)
    app.add_typer(of_accounts, name="accounts", rich_help_panel=PEOPLE)
    of_study = typer.Typer(
        cls=Group, no_args_is_help=True, help="Train experiments and sweeps together, and compare them."
    )
    for name, command in STUDY.items():
        of_study.command(name)(command)
    app.add_typer(of_study, name="study", rich_help_panel=TRAIN)
    of_cloud = typer.Typer(
        cls=Group, no_args_is_help=True, help="Rented machines: what a task costs there, and files that start it."
    )
    for name, command in CLOUD.items():
        of_cloud.command(name)(command)
    app.add_typer(of_cloud, name="cloud", rich_help_panel=TRAIN)
    of_arc = typer.Typer(cls=Group, no_args_is_help=True, help="ARC-AGI: make, check, score and bundle a submission.")
    for name, command in ARC.items():
        of_arc.command(name)(command)
    app.add_typer(of_arc, name="arc", rich_help_panel=WEIGHTS)
    of_settings = typer.Typer(cls=Group, no_args_is_help=True, help="Look at the settings.")
    of_settings.command("show")(settings.show)
    app.add_typer(of_settings, name="config", rich_help_panel=TRAIN)


def examples(program: str) -> str:
    """Two examples for each panel of the help, one a paragraph."""
    lines = [f"{panel}: `{'`, `'.join(f'{program} {words}' for words in pair)}`" for panel, pair in EXAMPLES.items()]
    return "\n\n".join(["Examples", *lines])
