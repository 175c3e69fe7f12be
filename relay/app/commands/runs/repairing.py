"""`repair`: shows the histories of a run that diverged after bad reads, and records a person's choice."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from relay.app.checks.verify import intact_by
from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import emit, say, speaks_utf8
from relay.app.messages.wording import duration
from relay.app.terminal.paragraphs import terminal_width
from relay.app.views.repairtext import choices, document, done, text_of
from relay.core.checkpoint.local import local_folder_of
from relay.core.errors import BadData, Exit
from relay.core.lease.blockers import Held
from relay.core.lease.host import FileHostLocks, default_folder
from relay.core.ledger.verified import mark_of
from relay.core.runs.opening import Pair, RunHandle, salvaged_run
from relay.core.runs.repair import Situation, choose, look


@subcommand()
def repair(
    call: Call,
    choice: Annotated[
        str | None,
        typer.Option(
            "--choose", metavar="NAME", help="Go on from this history; asks for no answer.", show_default=False
        ),
    ] = None,
) -> Answer:
    """Show the histories of a run whose ledger holds several, or less than was seen of it, and choose one.

    Appends one entry and deletes nothing. Exit 65 while there is something to decide.
    """
    asks = choice is None and not call.as_json and _at_a_terminal()
    opened, stores = _opened(call, read_only=choice is None and not asks)
    run_id, name = opened.view.state.run_id, opened.names.run
    local_folder, mark = local_folder_of(call.resolved.home, run_id), mark_of(call.resolved.home, run_id)
    situation = look(
        opened.ledger,
        stores.checkpoints,
        local_folder,
        mark.recall(),
        intact_by(opened.ledger, stores.checkpoints),
        say,
    )
    shown = text_of(name, situation, terminal_width(), speaks_utf8())
    if asks and situation.open:
        emit(False, {}, shown)
        shown, choice = "Nothing was changed.", _answer(situation)
    if choice is not None:
        wanted = situation.named(choice)
        if wanted is situation.own and not situation.open:
            return Answer(document(name, situation, None), shown)
        stores.ensure_tested()
        opened.ledger.chain.mark = mark
        choose(
            situation,
            wanted,
            opened.ledger,
            stores.checkpoints,
            local_folder,
            FileHostLocks(default_folder()),
            session=call.app.session,
            account=call.settings.account,
            notice=partial(_waiting, name),
        )
        shown = done(name, wanted, situation)
    undecided = situation.open and choice is None
    return Answer(document(name, situation, choice), shown, Exit.BAD_DATA if undecided else Exit.OK)


def _at_a_terminal() -> bool:
    """Return whether a person can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _opened(call: Call, read_only: bool) -> tuple[RunHandle, Pair]:
    """Open the run, also if its ledger is shorter than other evidence shows."""
    try:
        return call.require(read_only)
    except BadData:
        stores = call.stores(read_only)
        found = salvaged_run(stores, call.settings.project, call.settings.run)
        if found is None:
            raise
        return found, stores


def _answer(situation: Situation) -> str | None:
    """Ask a person at the terminal for a choice; None if they change nothing."""
    names = ", ".join(choices(situation))
    return str(typer.prompt(f"Your choice ({names}; Enter changes nothing)", default="", show_default=False)) or None


def _waiting(run: str, held: Held) -> None:
    say(f"Run {run}: making sure that {held.holder.account} trains no more ({duration(held.left_s)} at most).")
