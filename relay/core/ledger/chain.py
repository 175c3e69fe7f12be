"""A log whose entries carry a computed state: read it, append to it; knows nothing of what the states mean (P2, P4)."""

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

Change = Mapping[str, Any] | BaseModel

STRIDE = 64
"""Slots read one by one from a remembered view; beyond that only the newest are read."""
JUDGED = 256
"""Slots that a session judges at most before it writes (docs/decisions/0002-judgements.md)."""
REBASES = 1000
"""Slots lost in a row before giving up; each means that somebody else went on."""
HINT_EVERY = 16
"""Slots between two published hints."""


@dataclass(frozen=True)
class View(Generic[S]):
    """A log as far as it has been read. Immutable: threads may share it."""

    seq: int
    """The tail: the newest occupied slot, valid or void."""
    digest: str
    """Of the raw bytes in slot `seq`: the parent of the next entry."""
    state: S
    entry: Entry
    """The newest valid entry; `entry.seq < seq` if void ones follow it."""
    damage: tuple[Damage, ...] = ()
    """What was wrong with the slots that were read to get here."""


@dataclass
class Intent(Generic[S]):
    """One wish to change the state; it lands at most once, however often it is sent (P2)."""

    nonce: str
    tried_on: Point[S] | None = field(default=None, repr=False)
    """Where it was first tried: every later slot is searched for the nonce before it is sent again."""
    landed_in: int | None = None
    """The slot that holds it, once that is known."""

    @property
    def landed(self) -> bool:
        """Whether it is in the log."""
        return self.landed_in is not None


class Unsettled(UploadFailed):
    """The store never said whether an entry landed. Hand `intent` to the next `append` of the same change."""

    def __init__(self, message: str, intent: Intent[Any]) -> None:
        super().__init__(message)
        self.intent = intent


class Overtaken(StorageUnreachable):
    """Others took one slot after the other before this session could."""

    def __init__(self, address: str, times: int) -> None:
        super().__init__(f"{address}: {times} others wrote first.")
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
        """Where `judge` begins, and what it leaves for the next one."""
        self._known: Point[S] = Point()
        self._judged = False

    def intent(self) -> Intent[S]:
        """A fresh intent, for a caller that may have to send it twice."""
        return Intent(self.runtime.token())

    def read(self) -> View[S] | None:
        """The newest view, or None if the log is empty. A bounded number of reads, few after the first.

        Raises BadData (65) naming the slot for a hole, a lost entry or a log without any valid entry;
        StorageUnreachable (69); NewerFormat (78).
        """
        with store_errors(self.store):
            point = self._newest()
        return self._remember(point)

    def judge(self) -> None:
        """Judge every slot from the mark, or else the newest JUDGED, and from now on every later one. At most once.

        Forged entries can fit each other, so a cheap reading may believe what whoever has read along calls void. A
        session that writes looks further back. One read per slot, so that a lease on a long log stays quick.
        Raises as `read` does.
        """
        if self._judged:
            return
        judged = self.mark.recall()  # before the tail: what it names was in the log by then
        with store_errors(self.store):
            tail = self._tail()
            start = self._marked(judged, tail)
            self.reader.forget()
            point = self.reader.through(start, tail)
        self._judged, self._known = True, point
        if point.entry is not None and point.state is not None:
            self._keep_mark(point.entry, point.state)

    def append(
        self,
        kind: str,
        build: Callable[[S | None], Change],
        *,
        session: str,
        account: str | None = None,
        epoch: Callable[[S | None, int], int] = lambda state, passed: 0,
        intent: Intent[S] | None = None,
        give_up: Callable[[], bool] = lambda: False,
        held: bool = False,
    ) -> View[S]:
        """Land one change on the newest state; `build(state)` is called again on every rebase and may raise.

        `epoch` is asked with the state and the newest slot that the entry passes over (0: none). Such slots
        are read again for a while before; with `held`, for a session under its lease, they must be readable.
        Returns the view at the landed entry, or a later one. Raises what `build` raises, Refused (65),
        Unsettled (74), StorageUnreachable (69: nothing was written), and what `read` raises.
        """
        intent = intent or self.intent()

        def entry_on(point: Point[S]) -> Entry:
            change = build(point.state)  # first: who has lost the lease waits for no proof and no clock
            passed = self._passed(point, give_up, held)
            by = By(session, account, epoch(point.state, point.seq if passed else 0), self.store.now())
            return self._compose(point, kind, change, by, intent.nonce, passed)

        with store_errors(self.store):
            point = self._catch_up(intent.tried_on, intent) if intent.tried_on else self._newest()
            for _ in range(REBASES):
                if intent.landed:
                    break
                point = self._attempt(point, entry_on(point), intent, give_up)
            else:
                raise Overtaken(self.store.address, REBASES)
        view = self._remember(point)
        assert view is not None
        return view

    def append_at(self, point: Point[S], kind: str, change: Change, by: By, passed: Passed | None) -> View[S]:
        """Land one change after `point`, whose entry the caller chose to build on, or not at all.

        Nothing is rebuilt on a later entry: a person chose among what was there. It is written in format 5 in any case,
        so that it is judged from its own base. Raises Refused (65) if another entry
        took the slot or the rules say no, Unsettled (74), StorageUnreachable (69: nothing was written).
        """
        intent = self.intent()
        with store_errors(self.store):
            entry = self._compose(point, kind, change, by, intent.nonce, passed)
            entry = entry.model_copy(update={"format": PASSING})
            landed = self._attempt(point, entry, intent, lambda: False)
        if not intent.landed:
            raise Refused(f"{self.store.address}: slot {entry.seq} was written by another session first.")
        self._judged, self._known = True, landed
        view = self._remember(landed)
        assert view is not None
        return view

    def entries(self, start: int, stop: int) -> Iterator[Slot]:
        """The raw slots start … stop-1, unjudged. Raises as `read` does."""
        for seq in range(start, stop):
            with store_errors(self.store):
                slot = self.reader.slot(seq)
            yield slot

    def walk(self, tail: int) -> Iterator[Point[S]]:
        """Every slot from 0 to `tail`, judged in order; each point's `damage` is that slot's own. For `verify`."""
        point: Point[S] = Point()
        self.reader.forget()
        for slot in self.entries(0, tail + 1):
            with store_errors(self.store):
                point = self.reader.follow(replace(point, damage=()), slot)
            yield point

    def _newest(self) -> Point[S]:
        known, tail = self._known, self._tail()
        if not self._judged and (known.seq < 0 or tail - known.seq > STRIDE):
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

    def _marked(self, judged: VerifiedUpTo | None, tail: int) -> Point[S]:
        """Where judging begins: this machine's mark, or JUDGED slots below the tail.

        Raises RolledBack (65) if the mark lies beyond the tail, or its slot holds another entry than this machine has
        read there.
        """
        point = self.reader.claimed(judged.seq) if judged and judged.seq <= tail else None
        if judged and judged.sure and (judged.seq > tail or (point and point.digest != judged.digest)):
            raise self._rolled_back(judged, tail)
        if judged and point and point.digest == judged.digest and judged.seq >= tail - JUDGED:
            return point
        return self.reader.newest(tail - JUDGED) if tail > JUDGED else Point()

    def _rolled_back(self, judged: VerifiedUpTo, tail: int) -> RolledBack:
        state = self.reader.newest(tail).state if tail >= 0 else None
        step = self.machine.step_of(state) if state is not None else 0
        run = self.log.prefix.split("/")[-3]  # only a run's log has a mark
        text = (
            f"{self.store.address}: {self.log.prefix} was rolled back. This machine has read its entry {judged.seq} "
            f"(step {judged.step:,}), but the store now ends at entry {tail} (step {step:,})."
        )
        return RolledBack(text, run=run, step=judged.step, epoch=judged.epoch, known=judged)

    def _catch_up(self, point: Point[S], intent: Intent[S]) -> Point[S]:
        """Forward slot by slot from where the intent was tried, looking for it: it may have landed unseen."""
        for seq in range(point.seq + 1, self.log.tail(point.seq if point.seq >= 0 else None) + 1):
            point = self.reader.follow(point, self.reader.slot(seq))
            if point.base != seq or point.entry is None:
                continue
            if point.entry.nonce == intent.nonce:
                intent.landed_in = seq
            elif intent.landed_in is not None and point.entry.base < intent.landed_in < seq:
                intent.landed_in = None  # somebody who could not read it has passed over it
        return point

    def _passed(self, point: Point[S], give_up: Callable[[], bool], held: bool) -> Passed | None:
        """What the next entry passes over, once it is proved that it must; None if it passes over nothing."""
        if point.base == point.seq:
            return None
        if point.entry is None:
            raise NoValidEntry(self.log, point.seq)
        return self.prover.prove(point, give_up, held=held)

    def _attempt(self, point: Point[S], entry: Entry, intent: Intent[S], give_up: Callable[[], bool]) -> Point[S]:
        """Send an entry to the slot after `point`: the point at it, or the newest one after somebody else won."""
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
            return self._catch_up(point, intent)
        intent.landed_in = entry.seq
        self._keep_mark(entry, self.machine.parse(entry.state))
        if entry.seq % HINT_EVERY == 0:
            with suppress(StoreError):
                self.log.publish_hint(entry.seq, digest(data))
        return Point(entry.seq, digest(data), self.machine.parse(entry.state), entry, point.damage)

    def _compose(self, point: Point[S], kind: str, change: Change, by: By, nonce: str, passed: Passed | None) -> Entry:
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
        """Remember on this machine how far the log has come: a store that shows less later was rolled back."""
        step = self.machine.step_of(state)
        self.mark.keep(VerifiedUpTo(seq=entry.seq, digest=digest(encode(entry)), step=step, epoch=entry.epoch))

    def _remember(self, point: Point[S]) -> View[S] | None:
        if point.seq > self._known.seq:
            self._known = point
        if point.state is None or point.entry is None:
            return None
        return View(point.seq, point.digest, point.state, point.entry, point.damage)
