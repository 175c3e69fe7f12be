"""The command line: trm-relay, which is rotate_accounts.py; how its commands end, whatever happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from relay.clock import end_process
from relay.commands import table
from relay.commands.common import App
from relay.commands.spelling import spelled
from relay.errors import Exit
from relay.machine.interrupts import unwind_on_sigterm
from relay.mishaps import explain, log_bug, tell
from relay.text.redact import secrets_of
from relay.text.zones import reading_in, zone_wanted
from relay.trmkind import Trm, leading

UsageProblem: type[Any] = typer.BadParameter.__mro__[2]
"""ClickException: newer typer carries its own click, older ones import it."""


class Commands(TyperGroup):
    """Runs a command and turns every outcome into an exit code; errors are one paragraph, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """As in click; an interrupt becomes Abort here, before typer turns it into a bare exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None

    def main(self, args: Sequence[str] | None = None, *_: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """As in click; with `standalone_mode` it exits."""
        app = extra["obj"] = extra.get("obj") or App(kind=Trm())
        args = spelled(sys.argv[1:] if args is None else args)
        with app.streams.guarded():
            code = self._code(app, args, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _code(self, app: App, args: Sequence[str], extra: Mapping[str, Any]) -> int:
        """Of the command, once it and what went wrong with it are told."""
        as_json, log = "--json" in args, None
        try:
            with reading_in(zone_wanted(app.environ)), app.streams.needed():
                return int(super().main(args, standalone_mode=False, **extra) or 0)
        except UsageProblem as problem:
            code, text = int(problem.exit_code), problem.format_message()
            if not as_json:
                problem.show()
                return code
        except typer.Abort:
            code, text = int(Exit.SIGINT), "Interrupted at once; what was committed is safe."
        except Exception as error:  # noqa: BLE001 - the one place that turns a bug into a line and a log
            code, text = explain(error)
            text = " ".join([text, *(app.chain.advice if code == Exit.STORAGE_UNREACHABLE else [])])
            if code == Exit.BUG:
                log = log_bug(error, app.cwd, app.runtime.wall(), secrets_of(app.environ))
        tell(code, text, log, as_json, secrets_of(app.environ))
        return code


app = typer.Typer(
    cls=Commands,
    name="trm-relay",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train one model in turns, across many short sessions of different people, over one shared folder.",
)
table.attach(app)


def main() -> None:
    """Entry point of trm-relay and rotate_accounts.py; exits. Under torchrun only the first process has a session."""
    try:
        with leading() as mine:
            if not mine:
                return
            unwind_on_sigterm()
            app()
    except SystemExit as end:
        end_process(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    except KeyboardInterrupt:  # one more while the first is being answered
        os._exit(Exit.SIGINT)


if __name__ == "__main__":
    main()
