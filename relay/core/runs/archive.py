"""Archives and deletes runs, and cleans up unneeded checkpoint files; clean-up needs no lease (P8)."""

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

# --- Archives, restores and deletes a run (decisions/0013) ----------------------------------------------------------


class NotArchived(PolicyRefused):
    """Only an archived run can be deleted."""

    def __init__(self, run: str) -> None:
        super().__init__(f"Run {run} is not archived.")
        self.run = run


class TooEarly(PolicyRefused):
    """The run was not archived for long enough to be deleted; times are store time."""

    def __init__(self, run: str, archived_s: float, deletable_at: float) -> None:
        super().__init__(f"Run {run} was archived {archived_s:,.0f} s ago; it may be deleted after {WAIT_S:,.0f} s.")
        self.run, self.archived_s, self.deletable_at = run, archived_s, deletable_at


class BroughtBack(PolicyRefused):
    """The run was unarchived while it was being deleted."""

    def __init__(self, run: str) -> None:
        super().__init__(f"Run {run} was unarchived during the deletion.")
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
    """Archive the run, so that no session may train it. Does nothing if it is archived already.

    Raises LeaseHeld (73) while a session trains it, PolicyRefused (77) if it was deleted, and errors of the ledger.
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
    """The change, if the state is still the one that was checked. Raises _MovedOn."""
    if (state.epoch, state.holder is None, state.archived) != (epoch, change.took_over is None, None):
        raise _MovedOn
    return change


def unarchive(ledger: RunLedger, *, session: str) -> RunState:
    """Unarchive the run. Does nothing if it is not archived. Raises PolicyRefused (77) if it was deleted."""
    state = ledger.validate().state
    refuse_deleted(state)
    if state.archived is not None:
        with suppress(_MovedOn):
            return ledger.append("unarchive", _unarchive, session=session, account=None).state
    return ledger.read().state


def _unarchive(state: RunState) -> Unarchive:
    """The change, unless another process was faster. Raises _MovedOn."""
    refuse_deleted(state)
    if state.archived is None:
        raise _MovedOn
    return Unarchive()


def mark_deleted(ledger: RunLedger, checkpoints: Store, *, session: str) -> RunState:
    """Append the `delete` entry, unless there is one. Files may be deleted only after it.

    Raises PolicyRefused (77) if the run is not archived, or not for long enough, BadData (65) for a lost entry.
    """
    ledger.validate()
    view = ledger.check_epochs(checkpoints)
    refuse_unseen(ledger, view)
    if view.state.deleted is not None:
        return view.state
    with suppress(_MovedOn):
        build = partial(_delete, view.state.archived)
        return ledger.append("delete", build, session=session, account=None).state
    return ledger.read().state


def _delete(archived: float | None, state: RunState) -> Delete:
    """The change, unless another process was faster. Raises _MovedOn, or BroughtBack (77) if it was unarchived."""
    if state.deleted is not None:
        raise _MovedOn
    if state.archived != archived:
        raise BroughtBack(state.run)
    return Delete()


def refuse_unseen(ledger: RunLedger, view: View) -> None:
    """Check that a deleted run was visibly archived for a day, before any of its files is deleted.

    A machine that slept can write an entry a day after its date, and an author can give a false date. So the day starts
    when the store received the slot of `archive`; this also holds if there is a `delete` entry already.
    Raises PolicyRefused (77), StorageUnreachable (69).
    """
    state = view.state
    with store_errors(ledger.store):
        now = ledger.store.now()
    refuse_early(state.model_copy(update={"deleted": None}), now, shown_at(ledger, view))


def shown_at(ledger: RunLedger, view: View) -> float:
    """Store time at which the `archive` entry landed; 0 without one. Raises StorageUnreachable (69)."""
    if view.state.archived is None:
        return 0.0
    slot = view.entry.seq if view.state.deleted is None else view.entry.base
    with store_errors(ledger.store, "The time of archiving is unknown"):
        return ledger.store.stat(ledger.chain.log.ref(slot)).modified


def refuse_early(state: RunState, now: float, shown: float = 0.0) -> None:
    """Raises NotArchived or TooEarly (77). `now` and `shown` (`deletable_at`) are store time."""
    ready = deletable_at(state, shown)
    if ready is None:
        raise NotArchived(state.run)
    if now < ready:
        raise TooEarly(state.run, max(0.0, now - (ready - WAIT_S)), ready)


def as_deleted(state: RunState, now: float) -> RunState:
    """The state as it would be after deletion, for a preview."""
    nothing = {"head": None, "retained": (), "retired": (), "best": None}
    return state.model_copy(update={**nothing, "deleted": state.deleted or now})


def sweep_reports(store: Store, names: Names) -> None:
    """Delete the session reports of a deleted run, the note on its data and its page. One that stays is harmless."""
    prefix = names.session(0).rpartition("/")[0] + "/"
    with suppress(StoreError):
        for stat in [*store.list(prefix), *store.list(names.data), *store.list(names.page)]:
            store.delete(stat.ref)


class _MovedOn(Exception):
    """The run changed after it was checked."""


# --- Decides which stored files of a run are unneeded, and deletes them (P8) -----------------------------------------


class StoreFull(QuotaExceeded):
    """The store is full, so its clock cannot be read: a store without its own clock needs to write a small file."""

    def __init__(self, run: str, sentence: str) -> None:
        super().__init__(sentence)
        self.run = run


def decide(opened: RunHandle, stores: Pair, full: bool) -> tuple[RunState, list[FileVerdict]]:
    """A verdict for every listed checkpoint file, and the state it was based on.

    Unlike `opened.view`, that state has validated slots: a forged entry must not release a file.

    A file that this state releases is never needed again, so no lease is needed (P8). Raises BadData (65) for a lost
    entry or a commit that was passed over and is not kept, PolicyRefused (77) for a run that is marked deleted but was
    not archived for a day.
    """
    opened.ledger.validate()
    view = opened.ledger.check_epochs(stores.checkpoints)
    refuse_overlooked(opened.ledger, view)
    state = view.state
    if state.deleted is not None:
        refuse_unseen(opened.ledger, view)
    with store_errors(stores.checkpoints, "It is unknown which files are needed"):
        try:
            found = Surveyor(stores.checkpoints, stores.ledger, opened.names)(state, short_of_space=full)
        except QuotaExceeded as error:  # from the probe that reads the store's clock
            raise StoreFull(opened.names.run, str(error)) from error
    return state, found.decided


def clear(verdicts: list[FileVerdict], names: Names, stores: Pair, epoch: int) -> list[FileVerdict]:
    """Delete the files that may go, manifests last, and parts of killed uploads of epochs below `epoch`.

    Raises nothing. Returns the verdicts, changed to "stuck" for files that could not be deleted.
    """
    gone: set[Stat] = set()
    delete(going(verdicts), stores.checkpoints, names, lambda: True, gone.add)
    sweep_parts(stores.checkpoints, names, epoch)

    def after(file: FileVerdict) -> FileVerdict:
        stuck = file.goes and file.stat not in gone
        return replace(file, goes=False, rule="stuck") if stuck else file

    return [after(file) for file in verdicts]
