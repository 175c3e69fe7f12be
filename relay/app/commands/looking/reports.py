"""`report` and `status`: show a run, one session, all sessions or one account; they write nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import typer
from pydantic import BaseModel

from relay.app.checks.space import of_store, space_lines
from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import say, speaks_utf8
from relay.app.commands.joining import join
from relay.app.commands.reading import every_link
from relay.app.commands.stores import accounts, open_stores
from relay.app.machine.skew import clock_warning
from relay.app.messages.handoff import command_for
from relay.app.messages.wording import harmless, in_bin_text, printable
from relay.app.redact import nameless
from relay.app.terminal.cells import drawn
from relay.app.terminal.follow import LEAST_S, USUAL_S
from relay.app.terminal.paragraphs import terminal_width
from relay.app.views.accounts import Told, account_document, account_text
from relay.app.views.report import draw, report_document
from relay.app.views.sessionstable import session, sessions_document, sessions_text
from relay.app.views.sessionstart import start_document
from relay.app.views.sessiontext import agrees, markdown, of_link, plain, read_report
from relay.app.views.status import status_document, status_line
from relay.core.errors import BadConfig, RelayError, UsageError, store_errors
from relay.core.ledger.atrest import stopped
from relay.core.ledger.frozen import OPEN
from relay.core.ledger.state import Link, RunState
from relay.core.names import Names
from relay.core.runs.binned import in_bin
from relay.core.settings.config import Resolved
from relay.people.accounts import row_of
from relay.people.status import RunStatus
from storage.base import StoreError

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
    """Show the report or the table of sessions again at each change."""
    from relay.app.commands.looking.following import FollowedReport, FollowedSessions, watch

    def drawn(view: RunStatus) -> str:
        return draw(view, call.app.machine, call.app.plugin.measures, ascii_only or not speaks_utf8(), terminal_width())

    watch(FollowedSessions(call) if sessions else FollowedReport(call, drawn), call.app, every_s)


@subcommand("overrides run config redact")
def status(call: Call, account: OfAccountOption = None) -> Answer:
    """Say in one line how a run stands, or with --account all of one account; --json prints relay.status/1."""
    if account:
        return of_account(call, account)
    view = call.view(people=False)
    if line := clock_warning(view.skew_s):
        say(line)
    tell_space(call.resolved, view)
    tell_bin(call, view)
    return Answer(status_document(view, newest_session(call, view) if call.as_json else None), status_line(view))


def newest_session(call: Call, view: RunStatus) -> dict[str, object] | None:
    """Return what the newest session of the run did, from its report and the run's own settings; None without one."""
    if view.state is None or not view.state.links:
        return None
    opened, stores = call.require()
    state, about = opened.view.state, None
    with store_errors(stores.ledger):
        report, _ = read_report(stores.ledger, opened.names, state, state.links[-1].epoch)
    with suppress(RelayError):  # settings that this version cannot read: the rest is known
        joined = join(call.app, call.resolved, opened, stores.ledger)
        about = call.app.plugin.about(joined.resolved.workload)
        if source := next(map((joined.told or {}).get, call.app.plugin.content), None):
            about = replace(about, source=source.name or source.kind, rows=source.rows or about.rows)
    return start_document(state, report, about, view.store)


def tell_space(resolved: Resolved[BaseModel], view: RunStatus) -> None:
    """Print a line on stderr if the store is a folder on a disk that is nearly full."""
    for line in space_lines(of_store(resolved, view.state)):
        say(line)


def tell_bin(call: Call, view: RunStatus) -> None:
    """Print a line on stderr if files of the run are in the bin of a store."""
    if view.state is None:
        return
    with suppress(StoreError):  # files in the bin can still be read
        stores = open_stores(call.app, call.resolved, read_only=True)
        if text := in_bin_text(in_bin(stores.both, Names(view.project, view.run))):
            say(f"BIN: {text}. Restore them in Drive; the next session does it where it may.")


def of_account(call: Call, account: str) -> Answer:
    """Show one account. Raises BadConfig (78) with the nearest id if the account is unknown."""
    seen = call.overview(of_people=True)
    view = seen.view
    row = next((row for row in view.accounts if row.id == account), None)
    if row is None:
        row_of(seen.known.registry.read(), account, view.store)
        raise BadConfig(f"Account {account} cannot be shown: it was registered this moment. Ask again.")
    told = Told(row, view, seen.runs)
    return Answer(account_document(told), account_text(told, terminal_width()))


def of_sessions(call: Call) -> Answer:
    """Show all sessions of the run; the oldest come from its history objects."""
    opened, stores = call.require()
    state = opened.view.state
    links, missing = every_link(opened.ledger, state)
    document = sessions_document(state.project, state.run, links, missing)
    text = sessions_text(links, missing, terminal_width(), speaks_utf8())
    return Answer(document, text, names=call.names(stores))


def of_session(call: Call, which: str) -> Answer:
    """Show the report that a session left, or its ledger entry if there is none."""
    opened, stores = call.require()
    state = opened.view.state
    links, _ = every_link(opened.ledger, state)
    link = pick(links, which, state)
    with store_errors(stores.ledger):
        report, why = read_report(stores.ledger, opened.names, state, link.epoch)
    if report is None and link.end == OPEN:
        why = "It has not ended, or its end is not known yet: a report is written as a session ends."
    if report is not None and not agrees(report, link):
        report, why = None, "Its report contradicts the ledger, and is left aside."
    names = call.names(stores)
    label = link.account if call.redact else accounts(stores).label_of(link.account)
    addresses = {} if call.redact else call.resolved.variables
    proposed = report.next if report and not stopped(state) else None
    command = command_for(proposed, state.run, addresses, call.app.by_script) if proposed else None
    headline = call.app.plugin.measures.headline
    text = markdown(report, headline, label) if report else of_link(link, state, why)
    page = markdown(report, headline, label, command) if report else text
    whole = {
        "schema": "relay.session-report/1",
        "epoch": link.epoch,
        "label": printable(label),
        "link": session(link),
        "report": report.document() if report else None,
        "why": why or None,
        "command": command,
    }
    escaped = names | {plain(name): key for name, key in names.items()}
    shown = laid_out(nameless(text.rstrip(), escaped), command)
    return Answer(nameless(whole, names), shown or nameless(page.rstrip(), escaped))


def pick(links: tuple[Link, ...], which: str, state: RunState) -> Link:
    """Return the session of that epoch, or the newest. Raises BadConfig (78) with the existing epochs."""
    if not links:
        raise BadConfig(f"Run {state.run} has had no session yet.")
    if which == "last":
        return links[-1]
    found = next((link for link in links if str(link.epoch) == which), None)
    if found is None:
        raise BadConfig(
            f"Run {state.run} has no session {which[:20]!r}: there are {links[0].epoch} to {links[-1].epoch}; "
            f"--session last shows the newest."
        )
    return found


def laid_out(text: str, command: str | None) -> str:
    """Return the text as drawn for a UTF-8 terminal; empty for a file, a pipe or an ASCII terminal, which get Markdown.

    The command comes last, on a line of its own, so that it can be copied.
    """
    width = terminal_width()
    if width is None or not speaks_utf8():
        return ""
    return drawn_markdown(text, width) + (f"\n\nNext:\n{command}" if command else "")


def drawn_markdown(text: str, width: int) -> str:
    """Draw Markdown without links, because `emit` removes escape sequences."""
    from rich.markdown import Markdown  # takes 0.1 s, so that only this command imports it

    return drawn(Markdown(harmless(text), hyperlinks=False), width)
