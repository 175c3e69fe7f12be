"""`runs`: lists the runs of a store; archives, unarchives and deletes a run (decisions/0013)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import say, speaks_utf8
from relay.app.commands.joining import require
from relay.app.messages.advice import command
from relay.app.messages.errors import paragraph
from relay.app.messages.wording import duration, iso
from relay.app.redact import redact
from relay.app.terminal.paragraphs import terminal_width
from relay.app.views.clearingtext import document_of, grouped, text_of
from relay.app.views.runstable import document, runs_text
from relay.core.checkpoint.collect import Surveyor, sweep_signs
from relay.core.checkpoint.retention import FileVerdict, going
from relay.core.errors import PolicyRefused, UsageError, store_errors
from relay.core.lease.blockers import Held
from relay.core.lease.host import FileHostLocks, default_folder
from relay.core.ledger.atrest import deletable_at
from relay.core.runs.archive import archive as archive_run
from relay.core.runs.archive import as_deleted, clear, decide, mark_deleted, refuse_early, shown_at, sweep_reports
from relay.core.runs.archive import unarchive as unarchive_run
from relay.core.runs.opening import Pair, RunHandle, check_expected, read_identity
from relay.core.runs.registered import lines_of
from relay.people.zones import local

RunName = Annotated[str, typer.Argument(metavar="NAME", help="The run; never one that was not named.")]


@subcommand("config")
def list_runs(call: Call) -> Answer:
    """All runs of the store: state, step, last sign of life, size of the checkpoints. Writes nothing."""
    stores = call.stores()
    check_expected(stores.ledger, stores.expected, read_identity(stores.ledger))
    lines = lines_of(stores)
    with store_errors(stores.ledger):
        now = stores.ledger.now()
    shown = [document(line, now) for line in lines]
    text = runs_text(lines, now, terminal_width(), speaks_utf8())
    return Answer({"schema": "relay.runs/1", "now": iso(now), "runs": shown}, text)


@subcommand("config")
def archive(name: RunName, call: Call, why: Annotated[str, typer.Option(help="A line for the others.")] = "") -> Answer:
    """Stop all training of a run. It can be read, and brought back with `runs unarchive`."""
    app, (opened, _) = call.app, _opened(call, name, read_only=False)
    locks = FileHostLocks(default_folder())
    state = archive_run(
        opened.ledger,
        app.runtime,
        locks,
        session=app.session,
        why=redact(why, app.secrets),
        notice=partial(_waiting, name),
    )
    text = (
        f"Run {name} is archived: no session trains it. `{command(f'runs unarchive {name}')}` brings it back; from "
        f"{local(deletable_at(state))} on it may be deleted."
    )
    ready = iso(deletable_at(state))
    return Answer({"schema": "relay.archive/1", "run": name, "archived": True, "deletable_at": ready}, text)


@subcommand("config")
def unarchive(name: RunName, call: Call) -> Answer:
    """Let an archived run train again."""
    opened, _ = _opened(call, name, read_only=False)
    unarchive_run(opened.ledger, session=call.app.session)
    document = {"schema": "relay.archive/1", "run": name, "archived": False, "deletable_at": None}
    return Answer(document, f"Run {name} may train again.")


@subcommand("config")
def delete(
    name: RunName,
    call: Call,
    yes_delete: Annotated[
        str | None, typer.Option(metavar="NAME", help="The run's name once more: delete it.", show_default=False)
    ] = None,
) -> Answer:
    """Show what deleting an archived run would delete; with --yes-delete NAME do it. A day after `runs archive`."""
    if yes_delete not in (None, name):
        raise UsageError(f"--yes-delete says {yes_delete!r}, but the run is {name!r}. Nothing was deleted.")
    opened, stores = _opened(call, name, read_only=yes_delete is None)
    if yes_delete is None:
        return _shown(opened, stores)
    mark_deleted(opened.ledger, stores.checkpoints, session=call.app.session)
    state, judged = decide(opened, stores, full=True)
    judged = clear(judged, opened.names, stores, state.epoch + 1)
    sweep_reports(stores.ledger, opened.names)
    sweep_signs(stores.ledger, opened.names, state.epoch + 1)
    text = f"{_told(judged, opened, done=True)}\nThe ledger stays, so that the name {name} cannot begin again at 0."
    if any(not file.goes and opened.names.parse_checkpoint(file.stat.name) for file in judged):
        text += f"\nNot everything could go. Run it again later: {command(f'runs delete {name}')} --yes-delete {name}"
    return Answer(_document(judged, opened, done=True), text)


def _opened(call: Call, name: str, read_only: bool) -> tuple[RunHandle, Pair]:
    opened, stores = require(call.app, call.settle({"run": name}), read_only)
    if not read_only:
        stores.ensure_tested()
    return opened, stores


def _waiting(name: str, held: Held) -> None:
    say(f"Run {name}: making sure that {held.holder.account} trains no more ({duration(held.left_s)} at most).")


def _shown(opened: RunHandle, stores: Pair) -> Answer:
    """Show the files that a deletion would remove, and the steps that are required before it."""
    opened.ledger.validate()
    state = opened.ledger.check_epochs(stores.checkpoints).state
    with store_errors(stores.checkpoints, "Cannot find out what would go"):
        now = stores.ledger.now()
        survey = Surveyor(stores.checkpoints, stores.ledger, opened.names)
        judged = survey(as_deleted(state, now), short_of_space=True).decided
    lines = [_told(judged, opened, done=False)]
    lines.append(f"The ledger ({opened.names.ledger}) and the accounts stay. {_first(opened, now)}")
    return Answer(_document(judged, opened, done=False), "\n".join(lines))


def _first(opened: RunHandle, now: float) -> str:
    """Return the step that is required before the deletion, or the command that deletes."""
    run, view = opened.names.run, opened.ledger.read()
    state = view.state
    try:
        if state.deleted is None:
            refuse_early(state, now, shown_at(opened.ledger, view))
    except PolicyRefused as early:
        first = f" `{command(f'runs archive {run}')}` does that." if state.archived is None else ""
        return f"{paragraph(early)}{first}"
    return f"To delete it: {command(f'runs delete {run}')} --yes-delete {run}"


def _told(judged: list[FileVerdict], opened: RunHandle, done: bool) -> str:
    return text_of(grouped(judged, opened.names), done=done, local_clock=False)


def _document(judged: list[FileVerdict], opened: RunHandle, done: bool) -> dict[str, Any]:
    """Return relay.delete/1; the other fields are as in relay.gc/1."""
    files = [{"name": file.name, "bytes": file.size} for file in going(judged)]
    told = document_of(grouped(judged, opened.names), files, done=done)
    state = opened.ledger.read().state
    head = {"schema": "relay.delete/1", "run": opened.names.run, "deletable_at": iso(deletable_at(state))}
    return {**told, **head}
