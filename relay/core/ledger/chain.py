"""Reads a log whose entries carry a computed state, and appends to it (P2, P4). Used for runs and the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from pydantic import BaseModel

from relay.core.clock import Runtime
from relay.core.errors import StorageUnreachable, UploadFailed, store_errors
from relay.core.ledger.canonical import digest
from relay.core.ledger.changes import By, Refused
from relay.core.ledger.entry import Entry, NotAnEntry, encode
from relay.core.ledger.fields import Passed
from relay.core.ledger.frozen import PASSING
from relay.core.ledger.passing import Prover
from relay.core.ledger.reader import Damage, Machine, NoValidEntry, Point, Reader, S, Slot, SlotEmpty
from relay.core.ledger.verified import NoMark, RolledBack, VerifiedMark, VerifiedUpTo
from storage.base import OutcomeUnknown, Store, StoreError
from storage.log import Log, Won

AnyChange = Mapping[str, Any] | BaseModel

STRIDE = 64
"""Up to this many slots after a remembered view are read one by one; beyond that only the newest are read."""
MOST_VALIDATED = 256
"""Most slots that a session validates before it writes (docs/decisions/0002-judgements.md)."""
REBASES = 1000
"""Slots lost in a row before giving up; each means that another session wrote first."""
HINT_EVERY = 16
"""Slots between two published hints."""


@dataclass(frozen=True)
class View(Generic[S]):
    """A log as far as it has been read. Immutable: threads may share it."""

    seq: int
    """The tail: the newest occupied slot, valid or invalid."""
    digest: str
    """Of the raw bytes in slot `seq`: the parent of the next entry."""
    state: S
    entry: Entry
    """The newest valid entry; `entry.seq < seq` if invalid ones follow it."""
    damage: tuple[Damage, ...] = ()
    """Damage in the slots that were read for this view."""


@dataclass
class Intent(Generic[S]):
    """One intended change of the state; it lands at most once, however often it is sent (P2)."""

    nonce: str
    tried_on: Point[S] | None = field(default=None, repr=False)
    """Where it was first tried. Every later slot is searched for the nonce before it is sent again."""
    landed_in: int | None = None
    """The slot that holds it, once known."""

    @property
    def landed(self) -> bool:
        """Whether it is in the log."""
        return self.landed_in is not None


class Unsettled(UploadFailed):
    """The store did not confirm whether an entry landed. Pass `intent` to the next `append` of the same change."""

    def __init__(self, message: str, intent: Intent[Any]) -> None:
        super().__init__(message)
        self.intent = intent


class Overtaken(StorageUnreachable):
    """Other sessions took one slot after the other before this one."""

    def __init__(self, address: str, times: int) -> None:
        super().__init__(f"{address}: other sessions wrote first, {times} times in a row.")
        self.address, self.times = address, times


class AlreadyBegun(Exception):
    """A genesis found that the log has one."""


class Chain(Generic[S]):
    """The log under `prefix` of a store, read as states of a machine."""

    def __init__(self, store: Store, prefix: str, machine: Machine[S], runtime: Runtime) -> None:
        self.store = store
        self.machine = machine
        self.runtime = runtime
        self.log = Log(store, prefix, sleep=runtime.sleep)
        self.reader = Reader(self.log, machine)
        self.prover = Prover(self.log, machine, runtime.sleep, runtime.monotonic)
        """Proves that slots cannot be read before an entry passes over them."""
        self.mark: VerifiedMark = NoMark()
        """The validated position: `validate` starts there, and stores a new one for the next session."""
        self._known: Point[S] = Point()
        self._validated = False

    @property
    def known(self) -> S | None:
        """The newest state that this process has read; None if none. Reads nothing."""
        return self._known.state

    def intent(self) -> Intent[S]:
        """A new intent, for a caller that may have to send it twice."""
        return Intent(self.runtime.token())

    def read(self) -> View[S] | None:
        """The newest view, or None if the log is empty. A bounded number of reads, few after the first.

        Raises BadData (65) naming the slot for a hole, a lost entry or a log without any valid entry;
        StorageUnreachable (69); NewerFormat (78).
        """
        with store_errors(self.store):
            point = self._newest()
        return self._remember(point)

    def validate(self) -> None:
        """Validate the slots from the mark, or without one the newest MOST_VALIDATED, and all later ones. Done once.

        Forged entries can fit each other, so a cheap read may believe entries that a session which read all slots calls
        invalid. Therefore a session reads further back before it writes. It reads each slot once, so that a lease on a
        long log stays fast. Raises as `read` does.
        """
        if self._validated:
            return
        marked = self.mark.recall()  # before the tail: its entry was in the log by then
        with store_errors(self.store):
            tail = self._tail()
            start = self._marked(marked, tail)
            self.reader.forget()
            point = self.reader.through(start, tail)
        self._validated, self._known = True, point
        if point.entry is not None and point.state is not None:
            self._keep_mark(point.entry, point.state)

    def append(
        self,
        kind: str,
        build: Callable[[S | None], AnyChange],
        *,
        session: str,
        account: str | None = None,
        epoch: Callable[[S | None, int], int] = lambda state, passed: 0,
        intent: Intent[S] | None = None,
        give_up: Callable[[], bool] = lambda: False,
        held: bool = False,
    ) -> View[S]:
        """Land one change on the newest state; `build(state)` is called again on every rebase and may raise.

        `epoch` is called with the state and the newest slot that the entry passes over (0: none). `Prover` reads such
        slots again for some time first; with `held`, for a session under its lease, they must be readable.
        Returns the view at the landed entry, or a later one. Raises the errors of `build` and `read`, Refused (65),
        Unsettled (74), StorageUnreachable (69: nothing was written).
        """
        intent = intent or self.intent()

        def entry_on(point: Point[S]) -> Entry:
            change = build(point.state)  # first: a session that lost its lease need not wait for the proof below
            passed = self._passed(point, give_up, held)
            by = By(session, account, epoch(point.state, point.seq if passed else 0), self.store.now())
            return self._compose(point, kind, change, by, intent.nonce, passed)

        with store_errors(self.store):
            point = self._catch_up(intent.tried_on, intent) if intent.tried_on else self._newest()
            for attempt in range(REBASES):
                if intent.landed:
                    break
                point = self._attempt(point, entry_on(point), intent, give_up)
                if attempt and not intent.landed:  # the first loss may be to a new lease, which `build` refuses first
                    point = self._catch_up(point, intent)
            else:
                raise Overtaken(self.store.address, REBASES)
        view = self._remember(point)
        assert view is not None
        return view

    def append_at(self, point: Point[S], kind: str, change: AnyChange, by: By, passed: Passed | None) -> View[S]:
        """Land one change directly after `point`, whose entry the caller chose to build on, or not at all.

        The change is not rebased, because a person chose among the entries of that moment. It is always written in
        format 5, so that readers validate it from its own base. Raises Refused (65) if another entry took the slot or
        the rules refuse the change, Unsettled (74), StorageUnreachable (69: nothing was written).
        """
        intent = self.intent()
        with store_errors(self.store):
            entry = self._compose(point, kind, change, by, intent.nonce, passed)
            entry = entry.model_copy(update={"format": PASSING})
            landed = self._attempt(point, entry, intent, lambda: False)
        if not intent.landed:
            raise Refused(f"{self.store.address}: slot {entry.seq} was written by another session first.")
        self._validated, self._known = True, landed
        view = self._remember(landed)
        assert view is not None
        return view

    def entries(self, start: int, stop: int) -> Iterator[Slot]:
        """The raw slots start … stop-1, not validated. Raises as `read` does."""
        for seq in range(start, stop):
            with store_errors(self.store):
                slot = self.reader.slot(seq)
            yield slot

    def walk(self, tail: int) -> Iterator[Point[S]]:
        """Every slot from 0 to `tail`, validated in order; each point's `damage` is only that slot's. For `verify`."""
        point: Point[S] = Point()
        self.reader.forget()
        for slot in self.entries(0, tail + 1):
            with store_errors(self.store):
                point = self.reader.follow(replace(point, damage=()), slot)
            yield point

    def _newest(self) -> Point[S]:
        known, tail = self._known, self._tail()
        if not self._validated and (known.seq < 0 or tail - known.seq > STRIDE):
            return self.reader.newest(tail) if tail >= 0 else known
        return self.reader.through(known, tail)

    def _tail(self) -> int:
        if self._known.seq >= 0:
            return self.log.tail(self._known.seq)
        hint = self.log.hint()
        tail = self.log.tail(hint.seq if hint else None)
        if lost := self.log.gaps(tail):  # a bisection can step over a hole; a listing cannot (I1)
            raise SlotEmpty(self.log, lost[0])
        return tail

    def _marked(self, marked: VerifiedUpTo | None, tail: int) -> Point[S]:
        """The point to validate from: this machine's mark, or MOST_VALIDATED slots below the tail.

        Raises RolledBack (65) if the mark lies beyond the tail, or its slot now holds another entry.
        """
        point = self.reader.claimed(marked.seq) if marked and marked.seq <= tail else None
        if marked and marked.sure and (marked.seq > tail or (point and point.digest != marked.digest)):
            raise self._rolled_back(marked, tail)
        if marked and point and point.digest == marked.digest and marked.seq >= tail - MOST_VALIDATED:
            return point
        return self.reader.newest(tail - MOST_VALIDATED) if tail > MOST_VALIDATED else Point()

    def _rolled_back(self, marked: VerifiedUpTo, tail: int) -> RolledBack:
        state = self.reader.newest(tail).state if tail >= 0 else None
        step = self.machine.step_of(state) if state is not None else 0
        run = self.log.prefix.split("/")[-3]  # only a run's log has a mark
        text = (
            f"{self.store.address}: {self.log.prefix} was rolled back. This machine has read its entry {marked.seq} "
            f"(step {marked.step:,}), but the store now ends at entry {tail} (step {step:,})."
        )
        return RolledBack(text, run=run, step=marked.step, epoch=marked.epoch, known=marked)

    def _catch_up(self, point: Point[S], intent: Intent[S]) -> Point[S]:
        """Read slot by slot from where the intent was tried, and search for it: it may have landed unnoticed."""
        for seq in range(point.seq + 1, self.log.tail(point.seq if point.seq >= 0 else None) + 1):
            point = self._follow(point, seq, intent)
        return point

    def _follow(self, point: Point[S], seq: int, intent: Intent[S]) -> Point[S]:
        """Read the slot after `point`; note if it holds the intent, or passes over it."""
        point = self.reader.follow(point, self.reader.slot(seq))
        if point.base != seq or point.entry is None:
            return point
        if point.entry.nonce == intent.nonce:
            intent.landed_in = seq
        elif intent.landed_in is not None and point.entry.base < intent.landed_in < seq:
            intent.landed_in = None  # a session that could not read it has passed over it
        return point

    def _passed(self, point: Point[S], give_up: Callable[[], bool], held: bool) -> Passed | None:
        """The slots that the next entry passes over, once proved unreadable; None if it passes over none."""
        if point.base == point.seq:
            return None
        if point.entry is None:
            raise NoValidEntry(self.log, point.seq)
        return self.prover.prove(point, give_up, held=held)

    def _attempt(self, point: Point[S], entry: Entry, intent: Intent[S], give_up: Callable[[], bool]) -> Point[S]:
        """Send an entry to the slot after `point`. Returns the point at that slot, also if another session won it."""
        intent.tried_on = intent.tried_on or point
        try:
            data = encode(entry)
            self.log.check_end(point.seq)
            outcome = self.log.append(entry.seq, data, give_up=give_up)
        except NotAnEntry as error:
            raise Refused(f"{self.store.address}: refused to write {error}.") from error
        except OutcomeUnknown as error:
            raise Unsettled(str(error), intent) from error
        if not isinstance(outcome, Won):
            return self._follow(point, entry.seq, intent)
        intent.landed_in = entry.seq
        self._keep_mark(entry, self.machine.parse(entry.state))
        if entry.seq % HINT_EVERY == 0:
            with suppress(StoreError):
                self.log.publish_hint(entry.seq, digest(data))
        return Point(entry.seq, digest(data), self.machine.parse(entry.state), entry, point.damage)

    def _compose(
        self, point: Point[S], kind: str, change: AnyChange, by: By, nonce: str, passed: Passed | None
    ) -> Entry:
        plain = change.model_dump(mode="json") if isinstance(change, BaseModel) else dict(change)
        voids = range(point.base + 1, point.seq + 1)
        state = self.machine.apply(point.state, kind, plain, by, tuple(voids), passed)
        return Entry(
            format=PASSING if passed else self.machine.format_of(state),
            seq=point.seq + 1,
            base=point.base,
            parent=point.digest,
            nonce=nonce,
            kind=kind,
            session=by.session,
            account=by.account,
            epoch=by.epoch,
            at=by.at,
            change=plain,
            state=state.model_dump(mode="json"),
            passed=passed,
        )

    def _keep_mark(self, entry: Entry, state: S) -> None:
        """Store on this machine how long the log is: a store that shows less later was rolled back."""
        step = self.machine.step_of(state)
        self.mark.keep(VerifiedUpTo(seq=entry.seq, digest=digest(encode(entry)), step=step, epoch=entry.epoch))

    def _remember(self, point: Point[S]) -> View[S] | None:
        if point.seq > self._known.seq:
            self._known = point
        if point.state is None or point.entry is None:
            return None
        return View(point.seq, point.digest, point.state, point.entry, point.damage)
