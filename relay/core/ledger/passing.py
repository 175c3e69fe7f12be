"""Proves that slots are unreadable before a new entry passes over them (P4); appends nothing.

One bad read must not lose a committed step. So each slot is read in full several times, on connections of its own, for
long enough that a half-synced file, a stale cache or a faulty link gives different bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic

from relay.core.errors import BadData, StorageUnreachable
from relay.core.ledger.canonical import digest
from relay.core.ledger.entry import encode
from relay.core.ledger.fields import Kept, Passed
from relay.core.ledger.frozen import MAX_DIGESTS, MAX_ENTRY_BYTES, MAX_KEPT
from relay.core.ledger.reader import LARGEST, Machine, Point, Reader, S
from storage.base import Missing, Ref, Store, TooLong
from storage.evidence import Arrived, settled
from storage.log import Log

SLICE_S = 5.0
"""Longest wait between two checks whether to stop waiting."""
LOOKS = 4
"""Number of reads of unreadable slots, the first and the last `patience_s` apart."""


@dataclass(frozen=True)
class Look:
    """The slots that are being read again, for a countdown."""

    first: int
    last: int
    left_s: float
    """Until they are passed over, if they stay unreadable."""


class SlotUnreadable(StorageUnreachable):
    """The holder of the lease cannot read a slot, which may hold another session's lease."""

    def __init__(self, log: Log, seq: int) -> None:
        super().__init__(f"{_slot(log, seq)} cannot be read.")
        self.address, self.seq, self.name = log.store.address, seq, log.name(seq)


class Blocked(SlotUnreadable):
    """The slot stays unreadable: this session cannot commit any more."""


class NoTimeToProve(StorageUnreachable):
    """A slot cannot be read, and the session ends before it was read again for long enough."""

    def __init__(self, log: Log, seq: int) -> None:
        super().__init__(f"{_slot(log, seq)} cannot be read, and there was no time to read it again.")
        self.address, self.seq, self.name = log.store.address, seq, log.name(seq)


class SlotsDiffer(StorageUnreachable):
    """Two readings of the same slots differ."""

    def __init__(self, log: Log, slots: range) -> None:
        which = f"slot {slots[0]}" if len(slots) == 1 else f"slots {slots[0]} to {slots[-1]}"
        super().__init__(
            f"{log.store.address}: two reads of {which} of the log ({log.name(slots[-1])}) differ. The storage or the "
            f"connection is unreliable, or a file is still being copied."
        )
        self.address, self.slots, self.name = log.store.address, slots, log.name(slots[-1])


class BadConnection(StorageUnreachable):
    """The bytes of a slot that arrive differ from the server's."""

    def __init__(self, log: Log, seq: int) -> None:
        super().__init__(f"{_slot(log, seq)} does not arrive as the server has it: the connection is bad.")
        self.address, self.seq, self.name = log.store.address, seq, log.name(seq)


class SlotTooNew(BadData):
    """A slot is as it was written, but this version cannot read it."""

    def __init__(self, log: Log, seq: int) -> None:
        super().__init__(f"{_slot(log, seq)} is as it was written, but this version of trm-relay cannot read it.")
        self.address, self.seq, self.name = log.store.address, seq, log.name(seq)


def _slot(log: Log, seq: int) -> str:
    return f"{log.store.address}: slot {seq} of the log ({log.name(seq)})"


class Prover(Generic[S]):
    """Reads the slots that an entry would pass over until they count as unreadable, and remembers these."""

    def __init__(
        self, log: Log, machine: Machine[S], sleep: Callable[[float], None], monotonic: Callable[[], float]
    ) -> None:
        self.patience_s = 180.0
        """Seconds between the first and the last read; at least the lease's TTL."""
        self.notice: Callable[[Look], None] = lambda look: None
        """Called often during the wait."""
        self.heed: Callable[[], None] = lambda: None
        """Called often during the wait; raises to end it, for example after a stop request."""
        self.keep: Callable[[Any, range], Sequence[Kept]] = lambda state, slots: ()
        """Returns the checkpoints that the slots may have committed, oldest first, given the state at the base. Raises
        if the slots must not be passed over."""
        self._log, self._machine, self._sleep, self._monotonic = log, machine, sleep, monotonic
        self._proved: dict[int, str] = {}
        """Digests of slots that were read again for long enough."""
        self._met: tuple[dict[int, tuple[str, bool]], float] | None = None
        """What a holder read in slots that it may not pass over, and the time of the first such read."""

    def prove(self, point: Point[S], give_up: Callable[[], bool] = lambda: False, *, held: bool = False) -> Passed:
        """The slots that an entry after `point` passes over; `held`: it is written under a lease.

        A holder does not pass over unreadable slots: one of them may have begun the next epoch, whose session may
        delete the files that this entry is about to name (docs/decisions/0014-passing-over.md).

        Raises SlotsDiffer (69) if two reads differ; Unavailable or BadConnection (69) if one differs from the store's
        own size or hash; NoTimeToProve (69) once `give_up()` is true; SlotUnreadable (69) if `held` and a slot cannot
        be read, Blocked after `patience_s` of this; SlotTooNew (65) if the log's hint shows that a slot is as it was
        written; and the errors of `keep` and `heed`.
        """
        slots = range(point.base + 1, point.seq + 1)
        start = _at_base(point)
        first = self._look(start, point)
        unreadable = [seq for seq, (_, readable) in first.items() if not readable]
        if unreadable and held:
            raise (Blocked if self._lasts(first) else SlotUnreadable)(self._log, unreadable[0])
        if any(self._proved.get(seq) != first[seq][0] for seq in unreadable):
            self._check_server(point, first)
            pause = self.patience_s / (LOOKS - 1)
            for left in range(LOOKS - 1, 0, -1):
                self._wait(slots, pause, (left - 1) * pause, give_up)
                if self._look(start, point) != first:
                    raise SlotsDiffer(self._log, slots)
            self._proved.update((seq, first[seq][0]) for seq in unreadable)
        hinted = self._hinted(slots, first)
        digests = tuple(first[seq][0] for seq in slots[-MAX_DIGESTS:])
        found = tuple(self.keep(point.state, slots))
        kept = found[-MAX_KEPT:]
        return Passed(digests=digests, hinted=hinted, kept=kept, unkept=len(found) - len(kept) or None)

    def _lasts(self, seen: dict[int, tuple[str, bool]]) -> bool:
        """Whether a holder has read the same unreadable slots for `patience_s`."""
        now = self._monotonic()
        if self._met is None or self._met[0] != seen:
            self._met = seen, now
        return now - self._met[1] >= self.patience_s

    def _wait(self, slots: range, seconds: float, after: float, give_up: Callable[[], bool]) -> None:
        """Sleep. `after`: seconds that remain after this sleep. Raises StorageUnreachable once `give_up()` is true."""
        while seconds > 0:
            self.notice(Look(slots[0], slots[-1], seconds + after))
            self.heed()
            if give_up():
                raise NoTimeToProve(self._log, slots[-1])
            self._sleep(min(SLICE_S, seconds))
            seconds -= SLICE_S

    def _look(self, start: Point[S], point: Point[S]) -> dict[int, tuple[str, bool]]:
        """Read the slots once more: each slot's digest, or its size if no entry can have that size, and whether it
        holds an entry with a correct SHA-256. Raises StorageUnreachable unless they still lead to the same base."""
        reader = Reader(self._log.again(), self._machine)
        junk = reader.junk(start.seq, point.seq)
        named = range(point.seq + 1)[-MAX_DIGESTS:]
        seen, now = {}, start
        for seq in range(start.seq + 1, point.seq + 1):
            if seq in junk and seq not in named:
                seen[seq] = (f"{junk[seq]} bytes", False)
                now = replace(now, seq=seq)
                continue
            slot = reader.read(seq)
            seen[seq] = (slot.digest, slot.entry is not None)
            now = reader.follow(now, slot)
        if now.base != start.base or now.digest != point.digest:
            raise SlotsDiffer(self._log, range(start.seq + 1, point.seq + 1))
        return seen

    def _check_server(self, point: Point[S], seen: dict[int, tuple[str, bool]]) -> None:
        """Raises Unavailable or StorageUnreachable if the store's own size or hash of a slot shows that other bytes
        arrived."""
        store, named = self._log.store, range(point.seq + 1)[-MAX_DIGESTS:]
        for seq in (seq for seq, (_, readable) in seen.items() if not readable and seq in named):
            ref = self._log.ref(seq)
            with suppress(Missing):
                found = settled(store, ref, partial(_whole, ref=ref), lambda arrived: False, LARGEST)
                if store.unique_names and found.size <= MAX_ENTRY_BYTES and found.sha256 != seen[seq][0]:
                    raise SlotsDiffer(self._log, range(seq, seq + 1))

    def _hinted(self, slots: range, seen: dict[int, tuple[str, bool]]) -> tuple[int, str] | None:
        """The log's hint, if it names one of the slots: it was published only after that slot's entry had landed."""
        hint = self._log.hint()
        if hint is None or hint.seq not in slots or seen[hint.seq][1]:
            return None
        if seen[hint.seq][0] == hint.digest:
            raise SlotTooNew(self._log, hint.seq)
        return hint.seq, hint.digest


def _whole(store: Store, block: int | None, ref: Ref) -> Arrived:
    """The object that holds a slot, including bytes that a store keeps next to the entry."""
    try:
        return Arrived.of(store.get(ref, limit=LARGEST), block)
    except TooLong:
        return Arrived(LARGEST + 1, "unread")


def _at_base(point: Point[S]) -> Point[S]:
    """The point at the newest valid entry, before the slots that follow it."""
    assert point.entry is not None
    return replace(point, seq=point.base, digest=digest(encode(point.entry)), damage=())
