"""`report` and `status`: look at a run; they write nothing and work before anything exists."""

from __future__ import annotations

from typing import Annotated

import typer

from relay.commands.common import (
    ConfigOption,
    JsonOption,
    Overrides,
    RunOption,
    emit,
    say,
    speaks_utf8,
    surroundings,
)
from relay.commands.reading import look
from relay.paragraphs import terminal_width
from relay.report import draw, report_document
from relay.skew import clock_warning
from relay.status import View, status_document
from relay.wording import duration, iso

AsciiOption = Annotated[bool, typer.Option("--ascii", help="Draw the box in plain ASCII.")]


def report(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    ascii_only: AsciiOption = False,
    as_json: JsonOption = False,
) -> None:
    """Draw the progress report of a run and its accounts."""
    app = surroundings(context)
    view = look(app, app.settle(overrides, config, {"run": run}))
    emit(
        as_json,
        report_document(view, app.machine),
        draw(view, app.machine, ascii_only or not speaks_utf8(), terminal_width()),
    )


def status(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say in one line how a run stands; --json prints relay.status/1."""
    app = surroundings(context)
    view = look(app, app.settle(overrides, config, {"run": run}))
    if line := clock_warning(view.skew_s):
        say(line)
    emit(as_json, status_document(view), status_line(view))


def status_line(view: View) -> str:
    """For people."""
    line = f"{view.project}/{view.run}: {view.phase}, step {view.step:,}/{view.target:,}"
    if view.training and view.holder:
        line += f", {view.holder.account} holds the lease until {iso(view.expires_at)} or longer"
    if view.state and view.state.head:
        head = view.state.head
        clock = " (this machine's clock)" if view.clock_is_local else ""
        line += f", last commit {duration(view.now - head.committed_at)} ago{clock}, state {head.state_hash[:12]}"
    line += f" ({view.store})" if view.store else ""
    line += f": {view.missing}" if view.missing else ""
    return line + (f". Halted: {view.state.halted}" if view.state and view.state.halted else "")
