"""Finds every history in a log: the one that ends in its newest entry, and those that a later entry passed over.

A history is a line of entries, each of which follows from its own base. A log has one history, unless a session could
not read a slot, continued from the entry before it, and the slot became readable again. Appends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Generic

from relay.core.errors import store_errors
from relay.core.ledger.chain import Chain
from relay.core.ledger.entry import Entry
from relay.core.ledger.reader import Point, Reader, S, Slot


@dataclass(frozen=True)
class OtherHistory(Generic[S]):
    """A history other than the log's own."""

    after: int
    """The newest slot that it shares with the log's own history; -1 if they share none."""
    slots: tuple[Slot, ...]
    """Its own slots, oldest first; each holds an entry."""
    state: S
    """The state at its newest entry."""
    before: S | None
    """The state at slot `after`; None if they share no slot."""

    @property
    def end(self) -> int:
        """Its newest slot."""
        return self.slots[-1].seq

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of its own slots."""
        return tuple(slot.entry for slot in self.slots if slot.entry)

    @property
    def seqs(self) -> tuple[int, ...]:
        """Numbers of its own slots."""
        return tuple(slot.seq for slot in self.slots)


@dataclass(frozen=True)
class Walked(Generic[S]):
    """The result of a walk over a whole log."""

    point: Point[S]
    """At the newest slot."""
    others: tuple[OtherHistory[S], ...] = ()
    own: tuple[Slot, ...] = ()
    """The slots of the log's own history since it first separated from another one."""
    digests: tuple[str, ...] = ()
    """SHA-256 of the raw bytes of every slot."""


class Histories(Generic[S]):
    """Collects the slots of a walk over a whole log. Keeps little of each entry, because a log may be long."""

    def __init__(self, reader: Reader[S]) -> None:
        self._reader = reader
        self._digests: list[str] = []
        self._base: dict[int, int] = {}
        """The base of each intact entry, by slot."""
        self._before: dict[int, int] = {}
        """The slot of the last valid entry before each intact one, according to the walk."""
        self._last = -1

    def see(self, slot: Slot, point: Point[S]) -> None:
        """Add the next slot, and the point after it."""
        self._digests.append(slot.digest)
        if slot.entry is not None:
            self._base[slot.seq], self._before[slot.seq] = slot.entry.base, self._last
        self._last = point.base

    def walked(self, point: Point[S]) -> Walked[S]:
        """The result of a walk that ended at `point`; reads the slots of other histories again.

        Raises as `Reader.slot` does.
        """
        others = self._others()
        after = min((other.after for other in others), default=point.seq)
        own = (self._reader.slot(seq) for seq in sorted(self._own()) if seq > after)
        return Walked(point, tuple(others), tuple(own), tuple(self._digests))

    def _others(self) -> list[OtherHistory[S]]:
        """The other histories, sorted by their first slots."""
        own = self._own()
        found: dict[int, tuple[Slot, Point[S]]] = {}
        came_from: dict[int, int] = {}
        for seq in sorted(self._base.keys() - own):
            slot = self._reader.slot(seq)
            before = self._base_of(slot, own, found)
            if before is None:
                continue
            after = self._reader.follow(before, slot)
            if after.base == seq:
                found[seq], came_from[seq] = (slot, after), before.base
        ends = sorted(found.keys() - set(came_from.values()))
        return sorted((self._history(end, found, came_from) for end in ends), key=lambda one: one.seqs)

    def _history(self, end: int, found: dict[int, tuple[Slot, Point[S]]], came_from: dict[int, int]) -> OtherHistory[S]:
        slots, seq = [], end
        while seq in found:
            slots.append(found[seq][0])
            seq = came_from[seq]
        state = found[end][1].state
        assert state is not None
        parted = self._reader.claimed(seq)
        return OtherHistory(seq, tuple(reversed(slots)), state, parted.state if parted else None)

    def _own(self) -> set[int]:
        """Slots of the newest valid entry and of the intact entries that it builds on."""
        own, seq = set(), self._last
        while seq >= 0 and seq not in own:
            own.add(seq)
            base = self._base[seq]
            seq = base if base in self._base or base < 0 else self._before[seq]  # a damaged base has no base to follow
        return own

    def _base_of(self, slot: Slot, own: set[int], found: dict[int, tuple[Slot, Point[S]]]) -> Point[S] | None:
        """The point that the writer of an entry outside the log's own history built on; None if unknown."""
        entry = slot.entry
        if entry is None or self._contradicts(entry, own, found):
            return None
        base, digest = entry.base, entry.parent
        if base >= 0 and base not in self._base:
            digest = self._digests[entry.seq - 1]
            base = max((seq for seq in {*own, *found} if seq < base), default=-1)
        if base in found:
            before: Point[S] | None = found[base][1]
        else:
            before = self._reader.claimed(base) if base in own or base < 0 else None
        return Point(entry.seq - 1, digest, before.state, before.entry) if before else None

    def _contradicts(self, entry: Entry, own: Collection[int], found: Collection[int]) -> bool:
        """Whether no session can have written the entry.

        An entry names the bytes of the slot before it. If they are still there, and are a valid successor of the base,
        the writer cannot have passed over them. If other bytes are there, the writer cannot have built on them.
        """
        before = entry.seq - 1
        same = before >= 0 and self._digests[before] == entry.parent
        if entry.base == before:
            return not same and before in self._base
        follows = (before in own or before in found) and self._base.get(before) == entry.base
        return same and follows and entry.passed is None


def nothing(slot: Slot, point: Point[Any]) -> None:
    """The default of `walk`: do nothing at a slot."""


def walk(chain: Chain[S], tail: int, each: Callable[[Slot, Point[S]], None] = nothing) -> Walked[S]:
    """Read and validate every slot up to `tail`. `each` gets each slot and the point at it, with that slot's damage.

    Raises as `Chain.read` does.
    """
    histories, point = Histories(chain.reader), Point[S]()
    chain.reader.forget()
    for slot in chain.entries(0, tail + 1):
        with store_errors(chain.store):
            point = chain.reader.follow(replace(point, damage=()), slot)
        histories.see(slot, point)
        each(slot, point)
    with store_errors(chain.store):
        return histories.walked(point)
