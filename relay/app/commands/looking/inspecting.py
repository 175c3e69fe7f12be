"""`report --session`, `--sessions` and `--account`: one session, all of them, one account; they write nothing."""

from __future__ import annotations

from typing import Any

from relay.app.commands.common import App, emit, speaks_utf8
from relay.app.commands.reading import every_link, names_in, overview
from relay.app.commands.stores import accounts, require
from relay.app.messages.handoff import command_for
from relay.app.messages.wording import harmless, printable
from relay.app.redact import nameless
from relay.app.terminal.cells import drawn
from relay.app.terminal.paragraphs import terminal_width
from relay.app.views.accountstatus import Told, account_document, account_text
from relay.app.views.sessionstable import session, sessions_document, sessions_text
from relay.app.views.sessiontext import agrees, markdown, of_link, plain, read_report
from relay.core.errors import BadConfig, store_errors
from relay.core.ledger.atrest import stopped
from relay.core.ledger.frozen import OPEN
from relay.core.ledger.state import Link, RunState
from relay.core.settings.config import Resolved
from relay.people.accounts import row_of


def show_account(app: App, resolved: Resolved[Any], account: str, redacted: bool, as_json: bool) -> None:
    """One account. Raises BadConfig (78) with the nearest id for one that nobody knows."""
    seen = overview(app, resolved, redacted)
    view = seen.view
    row = next((row for row in view.accounts if row.id == account), None)
    if row is None:
        row_of(seen.known.registry.read(), account, view.store)
        raise BadConfig(f"Account {account} cannot be shown: it was registered this moment. Ask again.")
    told = Told(row, view, seen.runs)
    emit(as_json, account_document(told), account_text(told, terminal_width()))


def show_sessions(app: App, resolved: Resolved[Any], redacted: bool, as_json: bool) -> None:
    """All sessions of the run, the oldest from its history objects."""
    opened, stores = require(app, resolved)
    state = opened.view.state
    links, missing = every_link(opened.ledger, state)
    document = sessions_document(state.project, state.run, links, missing)
    text = sessions_text(links, missing, terminal_width())
    names = names_in(stores) if redacted else {}
    emit(as_json, nameless(document, names), nameless(text, names))


def show_session(app: App, resolved: Resolved[Any], which: str, redacted: bool, as_json: bool) -> None:
    """What one session left of itself, else what the ledger tells of it."""
    opened, stores = require(app, resolved)
    state = opened.view.state
    links, _ = every_link(opened.ledger, state)
    link = pick(links, which, state)
    with store_errors(stores.ledger):
        report, why = read_report(stores.ledger, opened.names, state, link.epoch)
    if report is None and link.end == OPEN:
        why = "It has not ended, or nobody knows yet that it did: a report is written as a session ends."
    if report is not None and not agrees(report, link):
        report, why = None, "Its report contradicts the ledger, and is left aside."
    names = names_in(stores) if redacted else {}
    label = link.account if redacted else accounts(stores).label_of(link.account)
    addresses = {} if redacted else resolved.addresses
    proposed = report.next if report and not stopped(state) else None
    command = command_for(proposed, state.run, addresses) if proposed else None
    headline = app.plugin.measures.headline
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
    emit(as_json, nameless(whole, names), shown or nameless(page.rstrip(), escaped))


def pick(links: tuple[Link, ...], which: str, state: RunState) -> Link:
    """The session of that epoch, or the newest. Raises BadConfig (78) naming those that there are."""
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
    """For a terminal that speaks UTF-8; empty for a file, a pipe or an ASCII terminal, which get the Markdown itself.

    The command stands below, on one line, so that it can be copied.
    """
    width = terminal_width()
    if width is None or not speaks_utf8():
        return ""
    return drawn_markdown(text, width) + (f"\n\nNext:\n{command}" if command else "")


def drawn_markdown(text: str, width: int) -> str:
    """Without a link: `emit` lets no escape sequence out."""
    from rich.markdown import Markdown  # a tenth of a second, which no other command shall wait

    return drawn(Markdown(harmless(text), hyperlinks=False), width)
