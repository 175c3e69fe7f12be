"""Which stored files of a run nobody needs, and deleting them: anybody may, for no lease is needed (P8)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from relay.core.checkpoint.collect import Surveyor, delete, sweep_parts
from relay.core.checkpoint.retention import FileVerdict, going
from relay.core.clock import Runtime
from relay.core.errors import PolicyRefused, store_errors
from relay.core.lease.blockers import Held, blocked_by, vacant
from relay.core.lease.host import HostLocks
from relay.core.ledger.atrest import deletable_at, refuse_deleted
from relay.core.ledger.changes import Archive, Delete, Unarchive
from relay.core.ledger.frozen import WAIT_S
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.overlooked import refuse_overlooked
from relay.core.ledger.state import RunState
from relay.core.names import Names
from relay.core.runs.opening import Pair, RunHandle
from storage.base import QuotaExceeded, Stat, Store, StoreError

# --- Archives, brings back and deletes a run (decisions/0013): the order of entries and files -----------------------


class NotArchived(PolicyRefused):
    """Only an archived run can be deleted."""

    def __init__(self, run: str) -> None:
        super().__init__(f"Run {run} is not archived.")
        self.run = run


class TooEarly(PolicyRefused):
    """The run was archived, but not for long enough to be deleted; times are store time."""

    def __init__(self, run: str, archived_s: float, deletable_at: float) -> None:
        super().__init__(f"Run {run} was archived {archived_s:,.0f} s ago; it may be deleted after {WAIT_S:,.0f} s.")
        self.run, self.archived_s, self.deletable_at = run, archived_s, deletable_at


class BroughtBack(PolicyRefused):
    """Somebody let the run train again while it was being deleted."""

    def __init__(self, run: str) -> None:
        super().__init__(f"Run {run} was brought back meanwhile.")
        self.run = run


def archive(
    ledger: RunLedger,
    runtime: Runtime,
    locks: HostLocks,
    *,
    session: str,
    why: str = "",
    notice: Callable[[Held], None] = lambda held: None,
) -> RunState:
    """Let nobody train the run. Nothing changes if it is archived already.

    Raises LeaseHeld (73) while somebody trains it, PolicyRefused (77) if it was deleted, and what the ledger raises.
    """
    free = blocked_by(ledger, runtime, locks)
    while True:
        state, gone = vacant(ledger, runtime, free, runtime.monotonic(), notice, lambda: None)
        refuse_deleted(state)
        if state.archived is not None:
            return state
        with suppress(_MovedOn):
            build = partial(_archive, state.epoch, Archive(why=why, took_over=gone))
            return ledger.append("archive", build, session=session, account=None).state


def _archive(epoch: int, change: Archive, state: RunState) -> Archive:
    """The change, if the state is still the one that was looked at."""
    if (state.epoch, state.holder is None, state.archived) != (epoch, change.took_over is None, None):
        raise _MovedOn
    return change


def unarchive(ledger: RunLedger, *, session: str) -> RunState:
    """Let the run train again. Nothing changes if it may. Raises PolicyRefused (77) if it was deleted."""
    state = ledger.judge().state
    refuse_deleted(state)
    if state.archived is not None:
        with suppress(_MovedOn):
            return ledger.append("unarchive", _unarchive, session=session, account=None).state
    return ledger.read().state


def _unarchive(state: RunState) -> Unarchive:
    """The change, unless somebody else was faster."""
    refuse_deleted(state)
    if state.archived is None:
        raise _MovedOn
    return Unarchive()


def mark_deleted(ledger: RunLedger, checkpoints: Store, *, session: str) -> RunState:
    """The `delete` entry, unless it is there. Files may go only after it.

    Raises PolicyRefused (77) for a run that is not archived or not for long enough, BadData (65) for a lost entry.
    """
    ledger.judge()
    view = ledger.check_epochs(checkpoints)
    refuse_unseen(ledger, view)
    if view.state.deleted is not None:
        return view.state
    with suppress(_MovedOn):
        build = partial(_delete, view.state.archived)
        return ledger.append("delete", build, session=session, account=None).state
    return ledger.read().state


def _delete(archived: float | None, state: RunState) -> Delete:
    """The change, unless somebody else was faster, or brought the run back."""
    if state.deleted is not None:
        raise _MovedOn
    if state.archived != archived:
        raise BroughtBack(state.run)
    return Delete()


def refuse_unseen(ledger: RunLedger, view: View) -> None:
    """Before a file of a run that was or will be deleted goes: the others have had their day to see it archived.

    An entry can land a day after it was written, by a machine that slept; its author can also lie. So the day begins
    when the slot of `archive` was written, as the store dates it, and for an entry of `delete` that is there too.
    Raises PolicyRefused (77), StorageUnreachable (69).
    """
    state = view.state
    with store_errors(ledger.store):
        now = ledger.store.now()
    refuse_early(state.model_copy(update={"deleted": None}), now, shown_at(ledger, view))


def shown_at(ledger: RunLedger, view: View) -> float:
    """Store time at which the entry of `archive` landed, of a run that rests. Raises StorageUnreachable (69)."""
    if view.state.archived is None:
        return 0.0
    slot = view.entry.seq if view.state.deleted is None else view.entry.base
    with store_errors(ledger.store, "Nobody can tell since when the run is archived"):
        return ledger.store.stat(ledger.chain.log.ref(slot)).modified


def refuse_early(state: RunState, now: float, shown: float = 0.0) -> None:
    """Raises NotArchived or TooEarly (77). `now` and `shown` (`deletable_at`) are store time."""
    ready = deletable_at(state, shown)
    if ready is None:
        raise NotArchived(state.run)
    if now < ready:
        raise TooEarly(state.run, max(0.0, now - (ready - WAIT_S)), ready)


def as_deleted(state: RunState, now: float) -> RunState:
    """The state as it would be: for showing what would go."""
    nothing = {"head": None, "retained": (), "retired": (), "best": None}
    return state.model_copy(update={**nothing, "deleted": state.deleted or now})


def sweep_reports(store: Store, names: Names) -> None:
    """Delete what the sessions of a deleted run told of themselves; one that stays is harmless."""
    prefix = names.session(0).rpartition("/")[0] + "/"
    with suppress(StoreError):
        for stat in store.list(prefix):
            store.delete(stat.ref)


class _MovedOn(Exception):
    """The run is not what it was when it was looked at."""


# --- Which stored files of a run nobody needs, and deleting them: anybody may, for no lease is needed (P8) ----------


class StoreFull(QuotaExceeded):
    """The store's clock cannot be asked: a store without one of its own has to take a small file for that."""

    def __init__(self, run: str, said: str) -> None:
        super().__init__(said)
        self.run = run


def judge(opened: RunHandle, stores: Pair, full: bool) -> tuple[RunState, list[FileVerdict]]:
    """Every listed checkpoint file, and the state it was judged by.

    That state's slots were judged, as those of `opened.view` were not: a forged entry must not free a file.

    What such a view lets go, it lets go for ever, so no lease is needed (P8). Raises BadData (65) for a lost entry or a
    commit that was passed over and is not kept, PolicyRefused (77) for a run that is called deleted though it was not
    archived for a day.
    """
    opened.ledger.judge()
    view = opened.ledger.check_epochs(stores.checkpoints)
    refuse_overlooked(opened.ledger, view)
    state = view.state
    if state.deleted is not None:
        refuse_unseen(opened.ledger, view)
    with store_errors(stores.checkpoints, "Nobody can tell which files are needed"):
        try:
            found = Surveyor(stores.checkpoints, stores.ledger, opened.names)(state, short_of_space=full)
        except QuotaExceeded as error:  # of the probe that tells the store's clock
            raise StoreFull(opened.names.run, str(error)) from error
    return state, found.judged


def clear(judged: list[FileVerdict], names: Names, stores: Pair, epoch: int) -> list[FileVerdict]:
    """Delete what may go, manifests last, and parts of killed uploads of epochs below `epoch`; raises nothing.

    What could not go is said to stay.
    """
    gone: set[Stat] = set()
    delete(going(judged), stores.checkpoints, names, lambda: True, gone.add)
    sweep_parts(stores.checkpoints, names, epoch)

    def after(file: FileVerdict) -> FileVerdict:
        stuck = file.goes and file.stat not in gone
        return replace(file, goes=False, rule="stuck") if stuck else file

    return [after(file) for file in judged]
