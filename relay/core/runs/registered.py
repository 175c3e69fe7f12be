"""Reads all registered runs of a store; an unreadable ledger does not affect the others. Writes nothing."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from relay.core.clock import Runtime
from relay.core.errors import BadData, RelayError, store_errors
from relay.core.lease.heartbeat import sign_of_life
from relay.core.ledger.entry import NewerFormat
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.registry import Registry
from relay.core.ledger.state import RunState
from relay.core.ledger.usage import Interval
from relay.core.names import CHECKPOINTS, NAME, Names
from relay.core.runs.opening import Pair
from storage.base import Store
from storage.parallel import in_parallel

READERS = 16
"""Runs, and accounts, that a command reads at a time. A run takes a handful of requests, one after the other."""

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


def other_runs(registry: Registry, mine: Names, runtime: Runtime, readers: int = READERS) -> list[RunState]:
    """Newest states of all other registered runs, `readers` at a time; logs and skips one that is damaged or too new.

    They show the training of accounts, so a store without accounts is not read.
    """
    state = registry.read()
    if state is None or not state.accounts:
        return []
    others = [names for names in registry.runs() if names != (mine.project, mine.run)]
    found = in_parallel(lambda names: _newest(registry.store, *names, runtime), others, readers)
    return [state for state in found if state is not None]


def _newest(store: Store, project: str, run: str, runtime: Runtime) -> RunState | None:
    try:
        view = RunLedger(store, project, run, runtime).peek()
    except (BadData, NewerFormat) as error:
        LOG.warning("run %s/%s cannot be read: %s", project, run, error)
        return None
    return view.state if view else None


def standings(states: Iterable[RunState], store: Store, readers: int = READERS) -> list[Standing]:
    """Runs' states with their holders' newest signs of life, `readers` at a time. Raises StoreError."""
    return in_parallel(lambda state: standing(state, store), states, readers)


def lines_of(stores: Pair) -> list[RegisteredRun]:
    """Every registered run, oldest first, unreadable ones with their error. Raises StorageUnreachable (69)."""
    sizes, listed = sizes_of(stores.checkpoints), stores.registry().runs()
    return in_parallel(lambda names: line_of(stores, *names, sizes[names]), listed, READERS)


def line_of(stores: Pair, project: str, run: str, size: int) -> RegisteredRun:
    """One run by its newest entries."""
    store = stores.ledger
    try:
        view = RunLedger(store, project, run, stores.runtime).peek()
    except (BadData, NewerFormat) as error:
        return RegisteredRun(project, run, size, trouble=error)
    with store_errors(store):
        return RegisteredRun(project, run, size, found=standing(view.state, store) if view else None)


def listed_runs(
    stores: Pair, project: str, leave_out: Collection[str] = (), readers: int = READERS
) -> dict[str, RegisteredRun]:
    """A project's runs by name, from one listing and two reads each.

    This is advice: a listing may lag behind, and only a lease decides who trains. Raises StorageUnreachable (69).
    """
    store, home = stores.ledger, f"runs/{project}/"
    tails: dict[str, int] = {}
    beats: dict[tuple[str, int], float] = {}
    with store_errors(store):
        for stat in store.list(home):
            run, _, rest = stat.name.removeprefix(home).partition("/")
            if run in leave_out or not NAME.fullmatch(run):
                continue
            slot = rest.removeprefix("ledger/").removesuffix(".json")
            if len(slot) == 20 and slot.isdecimal():
                tails[run] = max(tails.get(run, -1), int(slot))
            elif rest.startswith("heartbeat.") and (epoch := Names(project, run).parse_sign(stat.name)) is not None:
                beats[run, epoch] = stat.modified

    def line(run: str) -> RegisteredRun:
        try:
            state = stores.run_ledger(project, run).listed(tails[run])
        except (BadData, NewerFormat) as error:
            return RegisteredRun(project, run, 0, trouble=error)
        epoch = state.holder.epoch if state.holder else 0
        return RegisteredRun(project, run, 0, found=Standing(state, beats.get((run, epoch))))

    return dict(zip(tails, in_parallel(line, tails, readers), strict=True))


def sizes_of(store: Store) -> Counter[tuple[str, str]]:
    """Bytes under each run's checkpoints, by (project, run), out of one listing."""
    found = Counter[tuple[str, str]]()
    with store_errors(store, "The sizes are not known"):
        for stat in store.list(CHECKPOINTS):
            parts = stat.name.removeprefix(CHECKPOINTS).split("/")
            if len(parts) > 2:
                found[parts[0], parts[1]] += stat.size
    return found
