"""All runs of a store as their own ledgers tell; one that cannot be read is its own trouble. Writes nothing (P1)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

from relay.app.views.runstable import RunLine
from relay.core.clock import Runtime
from relay.core.errors import BadData, store_errors
from relay.core.lease.heartbeat import sign_of_life
from relay.core.ledger.entry import NewerFormat
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.registry import Registry
from relay.core.ledger.state import RunState
from relay.core.names import CHECKPOINTS, Names
from relay.core.runs.identity import Pair
from relay.people.standing import Standing
from storage.base import Store

LOG = logging.getLogger("relay.session")


def standing(state: RunState, store: Store) -> Standing:
    """A run's state with its holder's newest sign of life. Raises StoreError."""
    names, holder = Names(state.project, state.run), state.holder
    return Standing(state, sign_of_life(store, names, holder.epoch, holder.beat) if holder else None)


def other_runs(registry: Registry, mine: Names, runtime: Runtime) -> Iterator[RunState]:
    """Newest states of all other registered runs; one that is damaged or too new is its own trouble."""
    for project, run in registry.runs():
        if (project, run) == (mine.project, mine.run):
            continue
        try:
            view = RunLedger(registry.store, project, run, runtime).peek()
        except (BadData, NewerFormat) as error:
            LOG.warning("run %s/%s cannot be read: %s", project, run, error)
            continue
        if view is not None:
            yield view.state


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
        return RunLine(project, run, size, trouble=error)
    with store_errors(store):
        return RunLine(project, run, size, found=standing(view.state, store) if view else None)


def sizes_of(store: Store) -> Counter[tuple[str, str]]:
    """Bytes under each run's checkpoints, by (project, run), out of one listing."""
    found = Counter[tuple[str, str]]()
    with store_errors(store, "The sizes are not known"):
        for stat in store.list(CHECKPOINTS):
            parts = stat.name.removeprefix(CHECKPOINTS).split("/")
            if len(parts) > 2:
                found[parts[0], parts[1]] += stat.size
    return found
