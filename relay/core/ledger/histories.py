"""Finds every history that a log holds: the one its newest entry ends, and those that a later entry passed over.

A history is a line of entries, each of which follows from its own base. A log has one, unless a session could not
read a slot, went on from the entry before it, and the slot can be read again. Reads slots; appends nothing.
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
class History(Generic[S]):
    """A history beside the log's own."""

    after: int
    """The newest slot that it shares with the log's own history; -1 if they share none."""
    slots: tuple[Slot, ...]
    """Its own slots, oldest first; each holds an entry."""
    state: S
    """At its newest entry."""
    before: S | None
    """Where it parted from the log's own; None if they share no slot."""

    @property
    def end(self) -> int:
        """Its newest slot."""
        return self.slots[-1].seq

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Of its own slots."""
        return tuple(slot.entry for slot in self.slots if slot.entry)

    @property
    def seqs(self) -> tuple[int, ...]:
        """Numbers of its own slots."""
        return tuple(slot.seq for slot in self.slots)


@dataclass(frozen=True)
class Walked(Generic[S]):
    """What a walk over a whole log found."""

    point: Point[S]
    """At the newest slot."""
    others: tuple[History[S], ...] = ()
    own: tuple[Slot, ...] = ()
    """The slots of the log's own history since it first parted from another one."""
    digests: tuple[str, ...] = ()
    """Of the raw bytes of every slot."""


class Histories(Generic[S]):
    """Collects what a walk over a whole log reads. Keeps little of each entry, for a log may be long."""

    def __init__(self, reader: Reader[S]) -> None:
        self._reader = reader
        self._digests: list[str] = []
        self._base: dict[int, int] = {}
        """Of each intact entry."""
        self._before: dict[int, int] = {}
        """The slot of the last valid entry before each intact one, as the walk found it."""
        self._last = -1

    def see(self, slot: Slot, judged: Point[S]) -> None:
        """The next slot, and the point that the walk made of it."""
        self._digests.append(slot.digest)
        if slot.entry is not None:
            self._base[slot.seq], self._before[slot.seq] = slot.entry.base, self._last
        self._last = judged.base

    def walked(self, point: Point[S]) -> Walked[S]:
        """The outcome of a walk that ended at `point`; reads the slots of other histories again.

        Raises as `Reader.slot` does.
        """
        others = self._others()
        after = min((other.after for other in others), default=point.seq)
        own = (self._reader.slot(seq) for seq in sorted(self._own()) if seq > after)
        return Walked(point, tuple(others), tuple(own), tuple(self._digests))

    def _others(self) -> list[History[S]]:
        """By their first slots."""
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

    def _history(self, end: int, found: dict[int, tuple[Slot, Point[S]]], came_from: dict[int, int]) -> History[S]:
        slots, seq = [], end
        while seq in found:
            slots.append(found[seq][0])
            seq = came_from[seq]
        state = found[end][1].state
        assert state is not None
        parted = self._reader.claimed(seq)
        return History(seq, tuple(reversed(slots)), state, parted.state if parted else None)

    def _own(self) -> set[int]:
        """Intact entries that the newest valid one builds on, and itself."""
        own, seq = set(), self._last
        while seq >= 0 and seq not in own:
            own.add(seq)
            base = self._base[seq]
            seq = base if base in self._base or base < 0 else self._before[seq]  # a base that rotted names none
        return own

    def _base_of(self, slot: Slot, own: set[int], found: dict[int, tuple[Slot, Point[S]]]) -> Point[S] | None:
        """What the writer of an entry that is not of the log's own history had before it; None if it cannot be told."""
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
        """Whether no session can have written the entry, whatever it read.

        An entry names the bytes of the slot before it. If they are still there, and are a valid successor of the base,
        the writer cannot have passed over them; if other bytes are there, it cannot have built on them.
        """
        before = entry.seq - 1
        same = before >= 0 and self._digests[before] == entry.parent
        if entry.base == before:
            return not same and before in self._base
        follows = (before in own or before in found) and self._base.get(before) == entry.base
        return same and follows and entry.passed is None


def nothing(slot: Slot, point: Point[Any]) -> None:
    """What a walk does at each slot by default."""


def walk(chain: Chain[S], tail: int, each: Callable[[Slot, Point[S]], None] = nothing) -> Walked[S]:
    """Read and judge every slot up to `tail`; `each` is told each slot and the point at it, whose damage is its own.

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
