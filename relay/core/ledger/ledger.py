"""A run's ledger: reads its state, appends changes under the fence, and checks that no entry is lost (P2, P4, P5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pydantic import BaseModel, ValidationError

from relay.core.clock import Runtime
from relay.core.errors import BadConfig, BadData, Fenced, store_errors
from relay.core.ledger import rules
from relay.core.ledger.atrest import stopped
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.chain import AlreadyBegun, AnyChange, Chain, Intent
from relay.core.ledger.chain import View as AnyView
from relay.core.ledger.changes import KINDS, Genesis
from relay.core.ledger.fields import Strict
from relay.core.ledger.frozen import PASSING, SHARING, USUAL
from relay.core.ledger.reader import Machine, Point, Slot
from relay.core.ledger.state import History, Link, RunState
from relay.core.names import TOKEN, Names
from storage.base import Exists, Missing, Ref, Store, TooLong
from storage.transfer import create

View = AnyView[RunState]
HISTORY_LIMIT = 256_000


def _format_of(state: RunState) -> int:
    if state.kept or state.skipped or any(checkpoint.aside for checkpoint in state.retained):
        return PASSING
    return SHARING if state.bases else USUAL


MACHINE = Machine(
    kinds=frozenset(KINDS),
    model=RunState,
    apply=rules.apply,
    succeeds=rules.succeeds,
    alike=rules.alike,
    format_of=_format_of,
    step_of=lambda state: state.step,
)


class Archive(Strict):
    """A history object: links that left the state, oldest first, and its predecessor."""

    format: int = 1
    previous: History | None
    links: tuple[Link, ...]


class RunLedger:
    """The log of one run. All methods raise BadData (65), StorageUnreachable (69) and NewerFormat (78)."""

    def __init__(self, store: Store, project: str, run: str, runtime: Runtime) -> None:
        self.store = store
        self.names = Names(project, run)
        self.chain = Chain(store, self.names.ledger, MACHINE, runtime)

    def read(self) -> View:
        """The newest state. Raises BadConfig (78) if the run has not begun."""
        return self._begun(self.peek())

    def peek(self) -> View | None:
        """The newest state, or None if the run has not begun."""
        view = self.chain.read()
        if view and (view.state.project, view.state.run) != (self.names.project, self.names.run):
            raise LedgerOfAnotherRun(self.store.address, self.names, view.state)
        return view

    def listed(self, tail: int) -> RunState:
        """The state at a slot that a listing shows, maybe not the newest; mostly two reads. Raises as `peek` does."""
        reader = self.chain.reader
        with store_errors(self.store):
            slot = reader.slot(tail)
            usual = slot.entry is not None and slot.entry.base == tail - 1 and slot.entry.passed is None
            before = reader.claimed(tail - 1) if usual else None
            point = reader.follow(before, slot) if before else reader.newest(tail)
            if point.base != tail:
                point = reader.newest(tail)
        state = point.state
        assert state is not None
        if (state.project, state.run) != (self.names.project, self.names.run):
            raise LedgerOfAnotherRun(self.store.address, self.names, state)
        return state

    def begin(self, genesis: Genesis, *, session: str) -> tuple[View, bool]:
        """Append the genesis unless the run has begun. Returns the newest view, and whether this call began the run."""

        def build(state: RunState | None) -> AnyChange:
            if state is not None:
                raise AlreadyBegun
            return genesis

        try:
            return self.chain.append("genesis", build, session=session, account=None), True
        except AlreadyBegun:
            return self.read(), False

    def append(
        self,
        kind: str,
        build: Callable[[RunState], AnyChange],
        *,
        session: str,
        account: str | None,
        epoch: int | None = None,
        intent: Intent[RunState] | None = None,
        give_up: Callable[[], bool] = lambda: False,
    ) -> View:
        """Land one change on the newest state and return the view at it, or a later one.

        `build(state)` returns the kind's change (relay/core/ledger/changes.py); it is called again on every rebase and
        may raise. `epoch` is the session's own, as holder. None means the next one for a lease, otherwise the state's
        (an incident or resume without the lease). This method fills in a lease's `history`. `give_up` ends the store's
        retries early.

        Raises Fenced (76) if the epoch has grown or the holder is another session, Refused (65) if the rules refuse the
        change, Unsettled (74) if the outcome is unknown: pass its `intent` to try the same change again.
        The first append validates the slots before it (`validate`).
        """

        def checked(state: RunState | None) -> AnyChange:
            if state is None:
                raise UnknownRun(self.store.address, self.names.project, self.names.run)
            if epoch is not None and kind != "lease":
                check_fence(state, session, epoch)
            change = build(state)
            return self._with_history(state, change) if kind == "lease" else change

        def number(state: RunState | None, passed: int) -> int:
            if epoch is not None or state is None:
                return epoch or 0
            return max(state.next_epoch, passed + 1) if kind == "lease" else state.epoch

        self.chain.validate()
        return self.chain.append(
            kind,
            checked,
            session=session,
            account=account,
            epoch=number,
            intent=intent,
            give_up=give_up,
            held=epoch is not None,
        )

    def validate(self) -> View:
        """The newest state, after validating the slots that lead to it. Called before a lease. See `Chain.validate`."""
        self.chain.validate()
        return self.read()

    def intent(self) -> Intent[RunState]:
        """A new intent, for a caller that may have to send it twice."""
        return self.chain.intent()

    def genesis(self) -> Genesis:
        """The change that began the run, with all that it pinned."""
        for slot in self.chain.entries(0, self.read().seq + 1):
            if slot.entry and slot.entry.kind == "genesis":
                return Genesis.model_validate_json(dumps(slot.entry.change))
        raise BadData(f"{self.store.address}: {self.names.ledger} holds no genesis entry.")

    def check_epochs(self, checkpoints: Store) -> View:
        """The newest state, after checking that no file is of a later epoch (P2). Called before a lease or a delete.

        Raises BadData (65) otherwise: such a file proves that the entry which began its epoch has been lost.
        """
        seen = self.newest_epoch(checkpoints)
        view = self.read()  # after the listing: every file in the listing had its lease by then
        self.refuse_later_epoch(seen, view.state, checkpoints)
        return view

    def newest_epoch(self, checkpoints: Store) -> tuple[int, str]:
        """The highest epoch that a listing shows, and the file that shows it; (0, "") without any."""
        with store_errors(checkpoints):
            return max(self._epochs_in(checkpoints), default=(0, ""))

    def refuse_later_epochs(self, state: RunState, checkpoints: Store) -> None:
        """Raises BadData (65) if a file is of an epoch beyond `state`: the entry that began that epoch is lost."""
        self.refuse_later_epoch(self.newest_epoch(checkpoints), state, checkpoints)

    def refuse_later_epoch(self, seen: tuple[int, str], state: RunState, checkpoints: Store) -> None:
        """The same for one file and its epoch. An epoch that passed-over slots may have begun proves no loss."""
        if seen[0] >= state.next_epoch:
            raise EntryLost(checkpoints.address, seen[1], seen[0], state.epoch, self.names)

    def check_unused(self, checkpoints: Store) -> None:
        """Before a run begins: check that no files lie under its name, which the new run would replace (I8).

        Raises StrayCheckpoints (78) otherwise: another ledger leads to them, or this ledger was lost.
        """
        seen = self.newest_epoch(checkpoints)
        if seen[0] and self.peek() is None:
            raise StrayCheckpoints(checkpoints.address, seen[1], self.store.address, self.names)

    def archived_links(self, state: RunState) -> tuple[Link, ...]:
        """The links that have left the state, oldest first. Raises BadData (65) if their objects are damaged."""
        parts: list[tuple[Link, ...]] = []
        history = state.history
        while history:
            archive = self._archive(history)
            if archive.previous and archive.previous.links >= history.links:
                raise BadData(f"{self.store.address}: the history object {history.ref} does not name an older one.")
            parts.append(archive.links)
            history = archive.previous
        return tuple(link for part in reversed(parts) for link in part)

    def entries(self, start: int, stop: int) -> Iterator[Slot]:
        """The raw slots start … stop-1, not validated."""
        return self.chain.entries(start, stop)

    def walk(self, tail: int) -> Iterator[Point[RunState]]:
        """Every slot from 0 to `tail`, validated in order; each point's `damage` is only that slot's."""
        return self.chain.walk(tail)

    def _begun(self, view: View | None) -> View:
        if view is None:
            raise UnknownRun(self.store.address, self.names.project, self.names.run)
        return view

    def _with_history(self, state: RunState, change: AnyChange) -> AnyChange:
        """Store the oldest links if a lease must move them. Every session writes the same bytes."""
        links = rules.links_to_archive(state)
        if not links:
            return change
        data = dumps(Archive(previous=state.history, links=links).model_dump(mode="json"))
        history = History(
            ref=self._created(links[-1].epoch, data),
            sha256=digest(data),
            links=len(links) + (state.history.links if state.history else 0),
        )
        plain = change.model_dump(mode="json") if isinstance(change, BaseModel) else dict(change)
        return {**plain, "history": history.model_dump(mode="json")}

    def _created(self, epoch: int, data: bytes) -> Ref:
        """Create a history object; if its name is taken by other bytes, under a name with its digest."""
        try:
            return create(self.store, self.names.history(epoch), data)
        except Exists:
            return create(self.store, self.names.history(epoch, digest(data)[:TOKEN]), data)

    def _archive(self, history: History) -> Archive:
        with store_errors(self.store):
            try:
                data = self.store.get(Ref(history.ref), limit=HISTORY_LIMIT)
            except (Missing, TooLong):
                data = b""
        try:
            if digest(data) == history.sha256:
                return Archive.model_validate_json(data)
        except ValidationError:
            pass  # raised below, like every other damage
        raise HistoryDamaged(self.store.address, history.ref)

    def _epochs_in(self, checkpoints: Store) -> Iterator[tuple[int, str]]:
        """(epoch, name) of every checkpoint file and heartbeat that a listing shows."""
        for stat in checkpoints.list(self.names.checkpoints):
            if key := self.names.parse_checkpoint(stat.name):
                yield key[1], stat.name
        for stat in self.store.list(self.names.signs[0]):
            if (epoch := self.names.parse_sign(stat.name)) is not None:
                yield epoch, stat.name


class UnknownRun(BadConfig):
    """The store holds no such run."""

    def __init__(
        self,
        address: str,
        project: str,
        run: str,
        known: Sequence[tuple[str, str]] | None = None,
        *,
        absent: bool = False,
        needs_init: bool = False,
    ) -> None:
        """`known`: project and name of the store's runs, oldest first; None if not looked up.

        `absent`: the store's folder does not exist yet; `needs_init`: no run begins in this store without `init`.
        """
        super().__init__(f"{address} holds no run {run} in project {project}.")
        self.address, self.project, self.run = address, project, run
        self.known, self.absent, self.needs_init = known, absent, needs_init


class LedgerOfAnotherRun(BadData):
    """The ledger lies under another run's name."""

    def __init__(self, address: str, names: Names, state: RunState) -> None:
        super().__init__(
            f"{address}: the ledger under {names.ledger} belongs to run {state.run} in project {state.project}."
        )
        self.address, self.log, self.project, self.run = address, names.ledger, state.project, state.run


class HistoryDamaged(BadData):
    """An object that holds the links which left the state is missing or damaged."""

    def __init__(self, address: str, ref: str) -> None:
        super().__init__(
            f"{address}: the history object {ref} is missing or damaged. The oldest sessions cannot be listed."
        )
        self.address, self.ref = address, ref


class StrayCheckpoints(BadConfig):
    """The checkpoints' store holds files of a run that the ledger's store does not hold."""

    def __init__(self, address: str, file: str, ledger_address: str, names: Names) -> None:
        super().__init__(
            f"{address} holds checkpoints of run {names.run} in project {names.project} ({file}), but {ledger_address} "
            f"has no such run."
        )
        self.address, self.file, self.ledger_address, self.log = address, file, ledger_address, names.ledger


class EntryLost(BadData):
    """A file's epoch is later than the ledger's: the entry that began that epoch is lost."""

    def __init__(self, address: str, file: str, epoch: int, newest: int, names: Names) -> None:
        """`newest`: the ledger's epoch."""
        super().__init__(
            f"{address}: {file} is of epoch {epoch}, but the ledger ends in epoch {newest}: an entry has been lost, or "
            f"no session wrote that file."
        )
        self.address, self.file, self.epoch, self.newest = address, file, epoch, newest
        self.run, self.log = names.run, names.ledger


class LeaseOver(Fenced):
    """This session's lease is over: another session took it, or the run is halted, archived or deleted."""

    def __init__(self, state: RunState, epoch: int) -> None:
        """`state`: the run's newest state; `epoch`: of this session's lease."""
        super().__init__(f"This session's lease on run {state.run} (epoch {epoch}) is over.")
        self.run, self.epoch, self.newest = state.run, epoch, state.epoch
        self.stopped = stopped(state)
        """The error that no session may train the run, if that is so."""
        self.holder = state.holder.account if state.holder else None


def check_fence(state: RunState, session: str, epoch: int) -> None:
    """Raises Fenced (76) unless the session holds the lease of that epoch and no later one exists (I5)."""
    holder = state.holder
    if state.epoch == epoch and holder and holder.session == session:
        return
    raise LeaseOver(state, epoch)
