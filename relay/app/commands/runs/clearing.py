"""`gc`: what retention lets anybody delete, shown with its reasons or done; retires nothing and needs no lease (P8)."""

from __future__ import annotations

from typing import Annotated

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.views.clearingtext import document_of, grouped, text_of
from relay.core.checkpoint.retention import going
from relay.core.runs.archive import clear, judge


@subcommand()
def gc(
    call: Call,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show; writes nothing.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="The store is full: do not give readers of retired files their hour.")
    ] = False,
) -> Answer:
    """Delete the stored files that no retained checkpoint needs. Sessions do this by themselves; nobody has to."""
    opened, stores = call.require(read_only=dry_run)
    state, judged = judge(opened, stores, full)
    if not dry_run:
        judged = clear(judged, opened.names, stores, state.epoch)
    groups, files = grouped(judged, opened.names), [{"name": stat.name, "bytes": stat.size} for stat in going(judged)]
    local = dry_run and stores.checkpoints.clock_is_local
    text = text_of(groups, done=not dry_run, local_clock=local)
    return Answer(document_of(groups, files, done=not dry_run), text)
