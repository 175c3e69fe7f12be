"""`report` and `status`: look at a run; they write nothing and work before anything exists."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import BaseModel

from relay.app.checks.space import of_store, told
from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import say, speaks_utf8
from relay.app.commands.looking.inspecting import of_account, of_session, of_sessions
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


@subcommand("overrides run config redact")
def report(
    call: Call,
    account: OfAccountOption = None,
    session: SessionOption = None,
    sessions: Annotated[bool, typer.Option("--sessions", help="All sessions as a table, with totals.")] = False,
    watch: WatchOption = None,
    ascii_only: AsciiOption = False,
) -> Answer | None:
    """Draw the progress report of a run and its accounts; or show one session, all of them, or one account."""
    _check(watch is not None, account, session, sessions, call.as_json)
    if account:
        return of_account(call, account)
    if session:
        return of_session(call, session)
    if watch is not None:
        follow_report(call, watch, sessions, ascii_only)
        return None
    if sessions:
        return of_sessions(call)
    view, machine = call.view(), call.app.machine
    box = draw(view, machine, call.app.plugin.measures, ascii_only or not speaks_utf8(), terminal_width())
    tell_space(call.resolved, view)
    return Answer(report_document(view, machine), box)


def _check(watch: bool, account: str | None, session: str | None, sessions: bool, as_json: bool) -> None:
    """Raises UsageError (2) for options that do not go together."""
    if watch and (account or session or as_json):
        raise UsageError("--watch follows the report or --sessions, for people: not with --account, --session, --json.")
    if sum(map(bool, (account, session, sessions))) > 1:
        raise UsageError("--account, --session and --sessions each show something else: give one of them.")


def follow_report(call: Call, every_s: float, sessions: bool, ascii_only: bool) -> None:
    """The same again and again."""
    from relay.app.commands.looking.following import FollowedReport, FollowedSessions, watch

    def drawn(view: View) -> str:
        return draw(view, call.app.machine, call.app.plugin.measures, ascii_only or not speaks_utf8(), terminal_width())

    watch(FollowedSessions(call) if sessions else FollowedReport(call, drawn), call.app, every_s)


@subcommand("overrides run config redact")
def status(call: Call, account: OfAccountOption = None) -> Answer:
    """Say in one line how a run stands, or with --account all of one account; --json prints relay.status/1."""
    if account:
        return of_account(call, account)
    view = call.view()
    if line := clock_warning(view.skew_s):
        say(line)
    tell_space(call.resolved, view)
    return Answer(status_document(view), status_line(view))


def tell_space(resolved: Resolved[BaseModel], view: View) -> None:
    """A line on stderr if the store is a folder on a disk that is nearly full."""
    for line in told(of_store(resolved, view.state)):
        say(line)
