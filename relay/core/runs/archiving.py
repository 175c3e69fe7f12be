"""Archives, brings back and deletes a run (decisions/0013): the order of entries and files; speaks to nobody."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from relay.core.clock import Runtime
from relay.core.errors import PolicyRefused, store_errors
from relay.core.lease.samehost import HostLocks
from relay.core.lease.vacancy import Held, obstacle_of, vacant
from relay.core.ledger.changes import Archive, Delete, Unarchive
from relay.core.ledger.frozen import WAIT_S
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.resting import deletable_at, refuse_deleted
from relay.core.ledger.state import RunState
from relay.core.names import Names
from storage.base import Store, StoreError


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
    free = obstacle_of(ledger, runtime, locks)
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
