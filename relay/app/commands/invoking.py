"""Parses the command line and maps every outcome to an exit code and at most one paragraph."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import typer

from relay.app.commands.common import App
from relay.app.commands.mistyped import Group, with_fix
from relay.app.models.plugin import Models, TaskPlugin
from relay.app.redact import redact
from relay.app.terminal.follow import USUAL_S
from relay.app.terminal.mishaps import explain, log_bug, tell
from relay.core.errors import Exit
from relay.people.zones import reading_in, zone_wanted

_NUMBER = re.compile(r"[+-]?[0-9.]+")


def spelled(args: Sequence[str]) -> list[str]:
    """The words as the parser knows them: it has no command `help` or `version`, and no optional values (`--watch`)."""
    if args[:1] == ["help"]:
        return [*args[1:], "--help"]
    if args == ["version"]:
        return ["--version"]
    if "report" not in args:
        return list(args)
    following = [*args[1:], ""]
    return [
        f"{word}={USUAL_S:g}" if word == "--watch" and not _NUMBER.fullmatch(after) else word
        for word, after in zip(args, following, strict=True)
    ]


UsageProblem: type[Any] = typer.BadParameter.__mro__[2]
"""ClickException: newer versions of typer contain their own click, older ones import it."""


class Commands(Group):
    """Runs a command and maps every outcome to an exit code. An error prints one paragraph, never a traceback."""

    plugin: ClassVar[Callable[[], TaskPlugin]]
    """Creates the plugin of the default workload if the caller gives no App."""
    models: ClassVar[Models | None] = None
    """All models, then."""
    examples: ClassVar[Sequence[str]] = ()
    """Command lines to show for a command that lacks a word."""

    def invoke(self, ctx: Any) -> Any:
        """As in click. An interrupt becomes Abort here, before typer turns it into a bare exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None

    def main(self, args: Sequence[str] | None = None, *_: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """As in click. With `standalone_mode` it exits, otherwise it returns the exit code."""
        app = extra["obj"] = extra.get("obj") or App(plugin=type(self).plugin(), models=type(self).models)
        args = spelled(sys.argv[1:] if args is None else args)
        app.hide(args)
        with app.streams.guarded():
            code = self._code(app, args, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _code(self, app: App, args: Sequence[str], extra: Mapping[str, Any]) -> int:
        """Run the command, print any error, and return the exit code."""
        as_json, log = "--json" in args, None
        try:
            with reading_in(zone_wanted(app.environ)), app.streams.needed():
                return int(super().main(args, standalone_mode=False, **extra) or 0)
        except UsageProblem as problem:
            with_fix(problem, app.plugin.model, self.examples)
            code, text = int(problem.exit_code), problem.format_message()
            if not as_json:
                problem.message = redact(problem.message, app.secrets)  # before it is folded into a frame
                problem.show()
                return code
        except typer.Abort:
            code, text = int(Exit.SIGINT), "Interrupted at once; what was committed is safe."
        except Exception as error:  # noqa: BLE001 - the one place that turns a bug into a line and a log
            code, text = explain(error)
            text = " ".join([text, *(app.chain.advice if code == Exit.STORAGE_UNREACHABLE else [])])
            if code == Exit.BUG:
                log = log_bug(error, app.cwd, app.runtime.wall(), app.secrets)
        tell(code, text, log, as_json, app.secrets)
        return code
