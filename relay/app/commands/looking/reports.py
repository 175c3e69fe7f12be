"""`report` and `status`: look at a run; they write nothing and work before anything exists."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import BaseModel

from relay.app.checks.space import of_store, space_lines
from relay.app.commands.common import (
    App,
    ConfigOption,
    JsonOption,
    Overrides,
    RedactOption,
    RunOption,
    emit,
    say,
    speaks_utf8,
    surroundings,
)
from relay.app.commands.looking.inspecting import show_account, show_session, show_sessions
from relay.app.commands.reading import look
from relay.app.machine.skew import clock_warning
from relay.app.terminal.follow import LEAST_S, USUAL_S
from relay.app.terminal.paragraphs import terminal_width
from relay.app.views.report import draw, report_document
from relay.app.views.status import status_document, status_line
from relay.core.errors import UsageError
from relay.core.settings.config import Resolved
from relay.people.status import View

AsciiOption = Annotated[bool, typer.Option("--ascii", help="Draw the box in plain ASCII.")]
OfAccountOption = Annotated[
    str | None, typer.Option("--account", "-a", metavar="ID", help="All of one account instead.", show_default=False)
]
SessionOption = Annotated[
    str | None,
    typer.Option("--session", metavar="EPOCH|last", help="What one session left of itself.", show_default=False),
]
WatchOption = Annotated[
    float | None,
    typer.Option(
        "--watch",
        metavar="[SECONDS]",
        min=LEAST_S,
        max=86_400,
        help=f"Look again every so many seconds (usually {USUAL_S:g}), until the target or Ctrl-C.",
        show_default=False,
    ),
]


def report(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    account: OfAccountOption = None,
    session: SessionOption = None,
    sessions: Annotated[bool, typer.Option("--sessions", help="All sessions as a table, with totals.")] = False,
    watch: WatchOption = None,
    ascii_only: AsciiOption = False,
    redact: RedactOption = False,
    as_json: JsonOption = False,
) -> None:
    """Draw the progress report of a run and its accounts; or show one session, all of them, or one account."""
    _check(watch is not None, account, session, sessions, as_json)
    app = surroundings(context)
    resolved = app.settle(overrides, config, {"run": run})
    if account:
        show_account(app, resolved, account, redact, as_json)
    elif session:
        show_session(app, resolved, session, redact, as_json)
    elif watch is not None:
        follow_report(app, resolved, watch, sessions, ascii_only, redact)
    elif sessions:
        show_sessions(app, resolved, redact, as_json)
    else:
        view = look(app, resolved, redact)
        box = draw(view, app.machine, app.plugin.measures, ascii_only or not speaks_utf8(), terminal_width())
        tell_space(resolved, view)
        emit(as_json, report_document(view, app.machine), box)


def _check(watch: bool, account: str | None, session: str | None, sessions: bool, as_json: bool) -> None:
    """Raises UsageError (2) for options that do not go together."""
    if watch and (account or session or as_json):
        raise UsageError("--watch follows the report or --sessions, for people: not with --account, --session, --json.")
    if sum(map(bool, (account, session, sessions))) > 1:
        raise UsageError("--account, --session and --sessions each show something else: give one of them.")


def follow_report(
    app: App, resolved: Resolved[BaseModel], every_s: float, sessions: bool, ascii_only: bool, redacted: bool
) -> None:
    """The same again and again."""
    from relay.app.commands.looking.following import FollowedReport, FollowedSessions, watch

    def drawn(view: View) -> str:
        return draw(view, app.machine, app.plugin.measures, ascii_only or not speaks_utf8(), terminal_width())

    source = FollowedSessions(app, resolved, redacted) if sessions else FollowedReport(app, resolved, drawn, redacted)
    watch(source, app, every_s)


def status(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    account: OfAccountOption = None,
    redact: RedactOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say in one line how a run stands, or with --account all of one account; --json prints relay.status/1."""
    app = surroundings(context)
    resolved = app.settle(overrides, config, {"run": run})
    if account:
        show_account(app, resolved, account, redact, as_json)
        return
    view = look(app, resolved, redact)
    if line := clock_warning(view.skew_s):
        say(line)
    tell_space(resolved, view)
    emit(as_json, status_document(view), status_line(view))


def tell_space(resolved: Resolved[BaseModel], view: View) -> None:
    """A line on stderr if the store is a folder on a disk that is nearly full."""
    for line in space_lines(of_store(resolved, view.state)):
        say(line)
