"""`runs list`: what a store holds, each run by its own ledger; writes nothing and works with read-only credentials."""

from __future__ import annotations

from collections import Counter

import typer

from relay.commands.common import ConfigOption, JsonOption, emit, speaks_utf8, surroundings
from relay.commands.reading import open_stores, standing
from relay.errors import BadData
from relay.ledger import RunLedger
from relay.log.entry import NewerFormat
from relay.names import CHECKPOINTS
from relay.runs.identity import Pair, check_expected
from relay.runs.runstable import RunLine, document, table
from relay.runs.storeid import read_identity
from relay.text.paragraphs import terminal_width
from relay.text.trouble import speaking
from relay.text.wording import iso
from storage.base import Store


def list_runs(context: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """All runs of the store: state, step, last sign of life, size of the checkpoints. Writes nothing."""
    app = surroundings(context)
    stores = open_stores(app, app.settle(config=config), read_only=True)
    check_expected(stores.ledger, stores.expected, read_identity(stores.ledger))
    lines = lines_of(stores)
    with speaking(stores.ledger):
        now = stores.ledger.now()
    shown = [document(line, now) for line in lines]
    text = table(lines, now, terminal_width(), speaks_utf8())
    emit(as_json, {"schema": "relay.runs/1", "now": iso(now), "runs": shown}, text)


def lines_of(stores: Pair) -> list[RunLine]:
    """Every registered run, oldest first. Raises StorageUnreachable; a ledger that cannot be read is told as such."""
    sizes = sizes_of(stores.checkpoints)
    return [line_of(stores, project, run, sizes[project, run]) for project, run in stores.registry().runs()]


def line_of(stores: Pair, project: str, run: str, size: int) -> RunLine:
    """One run by its newest entries."""
    store = stores.ledger
    try:
        view = RunLedger(store, project, run, stores.runtime).peek()
    except (BadData, NewerFormat) as error:
        return RunLine(project, run, size, trouble=str(error))
    with speaking(store):
        return RunLine(project, run, size, found=standing(view.state, store) if view else None)


def sizes_of(store: Store) -> Counter[tuple[str, str]]:
    """Bytes under each run's checkpoints, by (project, run), out of one listing."""
    found = Counter[tuple[str, str]]()
    with speaking(store, "The sizes are not known"):
        for stat in store.list(CHECKPOINTS):
            parts = stat.name.removeprefix(CHECKPOINTS).split("/")
            if len(parts) > 2:
                found[parts[0], parts[1]] += stat.size
    return found
