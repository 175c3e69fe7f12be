"""The command line: trm-relay and rotate_accounts.py."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from relay.app.commands import table
from relay.app.commands.invoking import Commands
from relay.app.commands.looking.environment import print_version
from relay.app.models.registry import MODELS, default_plugin, leading
from relay.app.terminal.mishaps import explain, log_bug, tell
from relay.core.clock import RealRuntime, end_process, exit_now
from relay.core.errors import Exit
from relay.core.lease.signals import unwind_on_sigterm
from storage.packages import program


class Relay(Commands):
    """The commands, with this program's models."""

    plugin, models = staticmethod(default_plugin), MODELS
    examples = tuple(words for pair in table.EXAMPLES.values() for words in pair)


app = typer.Typer(
    cls=Relay,
    name="trm-relay",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=table.examples(shlex.join(program())),
)
table.attach(app)


@app.callback()
def of_all(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version)
    ] = False,
) -> None:
    """Train one model in turns, across many short sessions of different people, over one shared folder."""


def main() -> None:
    """Entry point of trm-relay and rotate_accounts.py; exits. Of several processes only the first runs a command."""
    try:
        with leading():
            unwind_on_sigterm()
            app()
    except Exception as error:  # noqa: BLE001 - a follower's: commands turn their own errors into an exit
        code, text = explain(error)
        log = log_bug(error, Path.cwd(), RealRuntime().wall(), ()) if code == Exit.BUG else None
        tell(code, text, log, False, ())
        exit_now(code)
    except SystemExit as end:
        end_process(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    except KeyboardInterrupt:  # a second one, during the answer to the first
        os._exit(Exit.SIGINT)


if __name__ == "__main__":
    main()
