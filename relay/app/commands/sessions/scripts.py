"""`exec` and `check-loop`: run a script that relays its own loop; the session is in the script's process."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App
from relay.app.machine.logs import log_path
from relay.app.models.ownloop import OwnLoopPlugin
from relay.core.errors import BadConfig, BadData, Exit
from relay.core.folders import scratch_folder
from relay.core.lease.children import run_child
from relay.core.settings.config import AUTO
from relay.core.settings.origins import CHECK, EXIT_NOTE, variable
from relay.torch.launch import beside

if TYPE_CHECKING:
    from relay.torch.checkloop import Difference

Words = Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="For example: -- python train.py")]


class ScriptFailed(BadConfig):
    """A script did not do what was asked. `code`: its exit code; printed: its output."""

    def __init__(self, doing: str, code: int, printed: str = "") -> None:
        last = "".join(f" Its last line: {line}" for line in printed.strip().splitlines()[-1:])
        super().__init__(f"The script {doing} (its exit code is {code}).{last}")
        self.code = code


class NotExact(BadData):
    """A restart changes a script's results."""

    def __init__(self, script: str, found: Difference) -> None:
        super().__init__(f"{script} is not exact: at step {found.step:,} {', '.join(found.names)} differ first.")
        self.step, self.names = found.step, found.names


@subcommand("run account")
def exec_script(
    call: Call,
    words: Words,
    budget_minutes: Annotated[float | None, typer.Option(help="Minutes for the script.", show_default=False)] = None,
) -> None:
    """Run a script that relays its own loop, with these settings; exits with the code of its session."""
    given = {**call.flags, "budget_minutes": budget_minutes}
    environ = {variable(key): str(value) for key, value in given.items() if value is not None}
    app = App(OwnLoopPlugin(), environ={**call.app.environ, **environ}, cwd=call.app.cwd, cards=call.app.cards)
    resolved = app.settle(store=False)
    asked, folder = resolved.settings.processes, resolved.path(resolved.settings.sync_dir) / "logs"
    raise typer.Exit(run_script(app, words, {}, processes=1 if asked == AUTO else int(asked), logs=folder))


def run_script(
    app: App,
    words: Sequence[str],
    environ: Mapping[str, str],
    output: IO[Any] | None = None,
    processes: int = 1,
    logs: Path | None = None,
) -> int:
    """The exit code of the script's session; the script's own if it had none, or ended with another error.

    output: a file for the script's streams. processes: the script runs so many times, with the variables of
    torch.distributed. Signals reach the first one, whose exit code counts; the output of the others goes to `logs`.
    """
    with scratch_folder() as scratch, ExitStack() as stack:
        note = scratch / "exit"
        variables: Mapping[str, str] = {**app.environ, **environ, EXIT_NOTE: str(note)}
        if processes > 1:
            log = logs and log_path(logs, "exec", app.runtime.wall())
            variables = stack.enter_context(beside(words, variables, processes, app.cwd, log))
        code = run_child(words, variables, app.cwd, output)
        noted = 0
        with suppress(OSError, ValueError, KeyError, TypeError):
            noted = int(json.loads(note.read_text())["exit_code"])
    return noted if code in (0, 1) and noted else code


@subcommand("")
def check_loop(
    call: Call,
    words: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGUMENT]...", help="With its arguments.")],
    steps: Annotated[int, typer.Option(min=2, help="Steps to compare.")] = 20,
) -> Answer:
    """Train some steps of a script twice, once with a restart in a fresh process, and name the first difference."""
    found = check_script(call.app, words, steps)
    text = f"Exact: {steps} steps with a restart after {steps // 2} have the bytes of {steps} steps without."
    if found is not None:
        text = f"Not exact: at step {found.step:,} these differ first: {', '.join(found.names)}."
    first = None if found is None else {"step": found.step, "differ": list(found.names)}
    document = {"schema": "relay.check-loop/1", "exact": found is None, "steps": steps, "first": first}
    return Answer(document, text, Exit.OK if found is None else Exit.BAD_DATA)


def check_script(app: App, words: Sequence[str], steps: int) -> Difference | None:
    """The first difference; None if there is none. Raises ScriptFailed (78)."""
    from relay.torch.checkloop import first_difference, read_trace

    with scratch_folder() as scratch:

        def go(trace: str, store: str, target: int, stop: int) -> None:
            told = {"trace": str(scratch / trace), "store": str(scratch / store), "steps": target, "stop": stop}
            environ = {CHECK: json.dumps(told), "RELAY_SYNC_DIR": str(scratch / f"sync_{store}")}
            with (scratch / "output").open("w+", encoding="utf-8", errors="replace") as output:
                code = run_script(app, [sys.executable, *words], {**environ, "RELAY_EPHEMERAL": "1"}, output)
                output.seek(0)
                if code != (Exit.HANDOFF if stop else Exit.OK):
                    raise ScriptFailed("failed while it was checked", code, output.read())
            if not (scratch / trace).is_file():
                raise ScriptFailed("opened no session, or made no step", code)

        go("whole", "one", steps, 0)
        go("first", "two", steps, steps // 2)
        go("second", "two", steps, 0)
        whole = list(read_trace(scratch / "whole"))
        for trace in ("first", "second"):
            found = first_difference(whole, list(read_trace(scratch / trace)))
            if found is not None:
                return found
    return None


def check_loop_of(script: str | Path, *arguments: str, steps: int = 20) -> None:
    """`relay.check_loop`: as the command. Raises NotExact (65) with the first step and the names that differ."""
    found = check_script(App(plugin=OwnLoopPlugin()), [str(script), *arguments], steps)
    if found is not None:
        raise NotExact(str(script), found)
