"""Reads all registered runs of a store; an unreadable ledger does not affect the others. Writes nothing."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from relay.core.clock import Runtime
from relay.core.errors import BadData, RelayError, store_errors
from relay.core.lease.heartbeat import sign_of_life
from relay.core.ledger.entry import NewerFormat
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.registry import Registry
from relay.core.ledger.state import RunState
from relay.core.ledger.usage import Interval
from relay.core.names import CHECKPOINTS, Names
from relay.core.runs.opening import Pair
from storage.base import Store

LOG = logging.getLogger("relay.session")


@dataclass(frozen=True)
class Standing:
    """A run's newest state and its holder's newest heartbeat (store's clock), None if there is none."""

    state: RunState
    heartbeat: float | None = None

    def training(self, now: float) -> str | None:
        """The account with an unexpired lease at `now`; None without one."""
        holder = self.state.holder
        return holder.account if holder and self._sign() + holder.ttl_s > now else None

    def open_session(self, account: str, now: float) -> Interval | None:
        """The account's open session: until now, or until its last sign of life if the lease has expired."""
        holder = self.state.holder
        if holder is None or holder.account != account:
            return None
        return holder.since, max(holder.since, now if self.training(now) else self._sign())

    def _sign(self) -> float:
        since = self.state.holder.since if self.state.holder else 0.0
        return max(since, self.heartbeat or 0.0)


@dataclass(frozen=True)
class RegisteredRun:
    """One registered run."""

    project: str
    run: str
    bytes: int
    """Size of all its checkpoint files."""
    found: Standing | None = None
    """None if its ledger cannot be read, or if it was registered but never begun."""
    trouble: RelayError | None = None
    """The error of reading its ledger."""


def standing(state: RunState, store: Store) -> Standing:
    """A run's state with its holder's newest sign of life. Raises StoreError."""
    names, holder = Names(state.project, state.run), state.holder
    return Standing(state, sign_of_life(store, names, holder.epoch, holder.beat) if holder else None)


def other_runs(registry: Registry, mine: Names, runtime: Runtime) -> Iterator[RunState]:
    """Newest states of all other registered runs; logs and skips one that is damaged or too new."""
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


def lines_of(stores: Pair) -> list[RegisteredRun]:
    """Every registered run, oldest first, unreadable ones with their error. Raises StorageUnreachable (69)."""
    sizes = sizes_of(stores.checkpoints)
    return [line_of(stores, project, run, sizes[project, run]) for project, run in stores.registry().runs()]


def line_of(stores: Pair, project: str, run: str, size: int) -> RegisteredRun:
    """One run by its newest entries."""
    store = stores.ledger
    try:
        view = RunLedger(store, project, run, stores.runtime).peek()
    except (BadData, NewerFormat) as error:
        return RegisteredRun(project, run, size, trouble=error)
    with store_errors(store):
        return RegisteredRun(project, run, size, found=standing(view.state, store) if view else None)


def sizes_of(store: Store) -> Counter[tuple[str, str]]:
    """Bytes under each run's checkpoints, by (project, run), out of one listing."""
    found = Counter[tuple[str, str]]()
    with store_errors(store, "The sizes are not known"):
        for stat in store.list(CHECKPOINTS):
            parts = stat.name.removeprefix(CHECKPOINTS).split("/")
            if len(parts) > 2:
                found[parts[0], parts[1]] += stat.size
    return found
