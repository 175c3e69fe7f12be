"""Reads a log's slots and validates each: valid, invalid, or damaged later (P4). Appends nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from relay.core.errors import BadData
from relay.core.ledger.canonical import ZEROS, digest, dumps
from relay.core.ledger.changes import By, Refused
from relay.core.ledger.entry import Entry, NotAnEntry, decode
from relay.core.ledger.fields import Passed
from relay.core.ledger.frozen import MAX_ENTRY_BYTES, PASSING, USUAL, clean
from storage.base import Missing
from storage.log import Log

S = TypeVar("S", bound=BaseModel)

MAX_DAMAGE = 20
REMEMBERED = 256
"""Points that a reader remembers, because later entries may build on them and pass over others."""
DEEPEST = 256
"""Most bases that are followed from an entry that passes over others."""
LISTED = 64
"""For more slots than this, a listing shows which are too small or too large for an entry, and these are not read."""
SMALLEST = 256
"""Fewest bytes of an entry: its digests and ids alone take more."""
LARGEST = MAX_ENTRY_BYTES + 65_536
"""Most bytes of a slot, including those that a store keeps next to the entry."""
NO_ENTRY = "its size is that of no entry"
CANDIDATES = 4
"""Slots that a cheap read tries to prove by the bases they claim, before it validates the whole log."""


@dataclass(frozen=True)
class Machine(Generic[S]):
    """The state machine of a log: its kinds of entries, the type of its state, and its pure rules."""

    kinds: Collection[str]
    model: type[S]
    apply: Callable[[S | None, str, Mapping[str, Any], By, Sequence[int], Passed | None], S]
    succeeds: Callable[[S, S], None]
    """Raises Refused if the second state can never come after the first, whatever entries lie between."""
    alike: Callable[[S, S], None] = lambda one, other: None
    """Raises Refused unless both are states of the same thing."""
    format_of: Callable[[S], int] = lambda state: USUAL
    """The format of an entry with this state, so that a client that is too old for it reports that."""
    step_of: Callable[[S], int] = lambda state: 0
    """The training step of a state, for messages."""

    def parse(self, state: Mapping[str, Any]) -> S:
        """The state an entry claims. Raises ValidationError."""
        return self.model.model_validate_json(dumps(dict(state)))


@dataclass(frozen=True)
class Damage:
    """One line about damage in a slot. Nothing is lost unless an exception is raised."""

    slot: int
    text: str
    rotted: bool = False
    """The entry was valid when later ones were built on it; otherwise it never counted."""
    healed: bool = False
    """The slot is readable again after a later entry passed over it. It stays passed over."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", clean(self.text, 300))  # it may quote what a stranger wrote


@dataclass(frozen=True)
class Slot:
    """One slot as it was read. `entry` is None if it fails its own check; then `why` is the reason."""

    seq: int
    digest: str
    entry: Entry | None
    why: str = ""


@dataclass(frozen=True)
class Point(Generic[S]):
    """A position in a log, and the state there; immutable. The first point is before slot 0."""

    seq: int = -1
    """The newest slot read, valid or invalid."""
    digest: str = ZEROS
    """Of its raw bytes."""
    state: S | None = None
    entry: Entry | None = None
    """The newest valid entry."""
    damage: tuple[Damage, ...] = ()

    @property
    def base(self) -> int:
        """The slot the next entry must build on; -1 before the genesis."""
        return self.entry.seq if self.entry else -1

    def noting(self, *damage: Damage) -> tuple[Damage, ...]:
        """The damage so far and the given damage; the newest MAX_DAMAGE of it."""
        return (*self.damage, *damage)[-MAX_DAMAGE:]


class SlotEmpty(BadData):
    """A slot before a used one is empty (I1)."""

    def __init__(self, log: Log, seq: int) -> None:
        super().__init__(
            f"{log.store.address}: slot {seq} of the log ({log.name(seq)}) is empty, but later slots are not: an entry "
            f"has been lost."
        )
        self.address, self.seq, self.name = log.store.address, seq, log.name(seq)


class NoValidEntry(BadData):
    """No slot of a log holds a valid entry."""

    def __init__(self, log: Log, tail: int) -> None:
        super().__init__(f"{log.store.address}: none of the {tail + 1} entries under {log.prefix} is valid.")
        self.address, self.tail, self.first = log.store.address, tail, log.name(0)


class Reader(Generic[S]):
    """Validates the slots of one log by the rules of one machine."""

    def __init__(self, log: Log, machine: Machine[S]) -> None:
        self.log = log
        self.machine = machine
        self._valid: OrderedDict[int, Point[S]] = OrderedDict()
        """The newest points with a valid entry, by slot. An entry that passes over slots is validated from its base."""
        self._unfounded: set[int] = set()
        """Slots of entries that do not follow from their own bases; a cache, because many entries may build on one."""

    def forget(self) -> None:
        """Forget the points read so far: a cheap read may have believed one that a full validation must not."""
        self._valid.clear()
        self._unfounded.clear()

    def slot(self, seq: int) -> Slot:
        """Read a slot; if it fails its own check, read it a second time.

        Raises BadData (65) if the slot is empty, NewerFormat (78), StoreError.
        """
        slot = self.read(seq)
        return slot if slot.entry else self.read(seq)

    def newest(self, tail: int) -> Point[S]:
        """The state at the tail, from as few slots as can prove it: mostly the newest two.

        If the newest entry is invalid, the search continues at its base, or at the slot before it. After CANDIDATES
        slots the whole log is validated, so an outsider's entries cost only a few reads of the log.
        Raises BadData (65) if no slot holds a valid entry.
        """
        seq = tail
        junk: dict[int, int] | None = None
        for _ in range(CANDIDATES):
            base, point = self._alone(seq)
            if point.base == seq:
                return self.through(point, tail)
            seq = base if point.seq == seq else seq - 1
            junk = self.junk(-1, tail) if junk is None else junk
            while seq in junk:
                seq -= 1
            if seq < 0:
                break
        return self.through(Point(), tail)

    def through(self, point: Point[S], tail: int) -> Point[S]:
        """Validate every slot after `point` up to `tail`, in order. Raises NoValidEntry (65) if no entry is valid."""
        junk = self.junk(point.seq, tail)
        if point.entry is not None and point.base == point.seq:
            self._remember(point)
        for seq in range(point.seq + 1, tail + 1):
            slot = Slot(seq, ZEROS, None, NO_ENTRY) if seq in junk and seq + 1 in junk else self.slot(seq)
            point = self.follow(point, slot)
        if point.entry is None and tail >= 0:
            raise NoValidEntry(self.log, tail)
        return point

    def follow(self, point: Point[S], slot: Slot) -> Point[S]:
        """Validate the next slot: its entry changes the state, or is invalid and changes nothing.

        If the base of an intact entry was damaged later, the entry's state cannot be computed again. It is believed if
        it may succeed the last known state. The damage is noted.
        """
        if slot.entry is None:
            return self._invalid(point, slot, slot.why)
        try:
            damage: Iterable[Damage]
            if slot.entry.passed is not None or self._chose(point, slot.entry):
                state, damage = self._passing(point, slot.entry)
            else:
                rotted = self._rotted(point, slot.entry)
                state = (self._believed if slot.entry.base in rotted else self._computed)(point, slot.entry)
                text = "the entry in slot {} was damaged after slot {} was written"
                damage = [Damage(seq, text.format(seq, slot.seq), rotted=True) for seq in sorted(rotted)]
        except Refused as error:
            return self._invalid(point, slot, str(error))
        after = Point(slot.seq, slot.digest, state, slot.entry, point.noting(*damage))
        self._remember(after)
        return after

    def claimed(self, seq: int) -> Point[S] | None:
        """The point that an entry claims, not validated; None if its state cannot be parsed."""
        if seq < 0:
            return Point()
        slot = self.slot(seq)
        try:
            return Point(seq, slot.digest, self._parse(slot.entry), slot.entry) if slot.entry else None
        except Refused:
            return None

    def _alone(self, seq: int) -> tuple[int, Point[S]]:
        """Validate one slot from the base that it claims. Returns that base and the point at the slot.

        The entry is valid if the point's base is the slot itself. The point lies before the slot if the entry passed
        over a valid one.
        """
        slot = self.slot(seq)
        entry = slot.entry
        point = self.claimed(entry.base) if entry else None
        if entry is None or point is None:
            return -1, Point()
        if entry.passed is not None:
            self._remember(point)
            return entry.base, self.follow(replace(point, seq=seq - 1, digest=entry.parent), slot)
        for number in range(entry.base + 1, seq + 1):
            point = self.follow(point, self.slot(number))
            if point.base != entry.base:
                break
        return entry.base, point

    def _rotted(self, point: Point[S], entry: Entry) -> set[int]:
        """Slots before an intact entry that were damaged after its writer read them; mostly none.

        For the slot before it the digest shows this. A base further back was valid for the writer, so it was damaged
        later if it fails its own check now. Raises Refused if the entry itself is wrong.
        """
        rotted = set()
        if entry.parent != point.digest:
            if entry.seq == 0 or self.slot(entry.seq - 1).entry is not None:
                raise Refused("it names another parent than the slot before it")
            rotted.add(entry.seq - 1)
        if entry.base == point.base:
            return rotted
        if entry.base > point.base and entry.base not in rotted and entry.base < entry.seq - 1:
            rotted |= {entry.base} if self.slot(entry.base).entry is None else set()
        if entry.base < point.base or entry.base not in rotted:
            raise Refused(f"it builds on slot {entry.base}, but the last valid entry before it is in slot {point.base}")
        return rotted

    def _chose(self, point: Point[S], entry: Entry) -> bool:
        """Whether an entry builds on the slot before it although that slot is invalid here, because a person chose the
        history that ends there. From format 5 on an entry is validated from its own base."""
        before = entry.base == entry.seq - 1 and entry.parent == point.digest
        return entry.format >= PASSING and before and entry.base > point.base

    def _passing(self, point: Point[S], entry: Entry) -> tuple[S, list[Damage]]:
        """The state after an entry that passes over slots, validated from its own base whatever these slots hold now.

        A slot that is readable again, or was changed since, is reported and stays passed over, because sessions have
        continued from this entry. Raises Refused if the entry itself is wrong.
        """
        base = point if entry.base == point.base else self.own(entry.base)
        if base is not None:
            state = self._computed(base, entry)
        elif self.slot(entry.base).entry is None:  # it was damaged later, as any base can be
            state = self._believed(point if point.base < entry.base else self._below(entry.base), entry)
        else:
            raise Refused(f"it builds on slot {entry.base}, which holds no valid entry")
        if point.state is not None:
            self.machine.alike(point.state, state)  # a base may lead to a genesis that never counted
        if base is None:
            text = f"the entry in slot {entry.base} was damaged after slot {entry.seq} was written"
            return state, [Damage(entry.base, text, rotted=True)]
        if base is not point and self._as_passed(point.base, entry):
            return state, []
        if entry.base < point.base:
            text = f"the entry in slot {point.base} is readable again; slot {entry.seq} had passed over it"
            return state, [Damage(point.base, text, healed=True)]
        if entry.parent != point.digest:
            text = f"the bytes in slot {entry.seq - 1} have changed since slot {entry.seq} passed over them"
            return state, [Damage(entry.seq - 1, text, healed=True)]
        return state, []

    def _as_passed(self, seq: int, entry: Entry) -> bool:
        """Whether a slot still holds the bytes that the writer of an entry passed over, by a person's choice."""
        named = entry.passed.digests if entry.passed else ()
        back = entry.seq - seq
        return not named or (back <= len(named) and self.slot(seq).digest == named[-back])

    def own(self, seq: int) -> Point[S] | None:
        """The point at an entry that follows from its own base, and so on from base to base.

        The chain ends at an entry known to be valid, at the genesis, at one whose base was damaged (`_above_rot`), or
        after DEEPEST bases at one that is believed. None if the entry is unreadable, or an entry of the chain does not
        follow from its base.
        """
        chain: list[Slot] = []
        point: Point[S] | None = None
        while seq >= 0 and seq not in self._valid and len(chain) < DEEPEST:
            slot = self.slot(seq) if seq not in self._unfounded else None
            if slot is None:
                self._unfounded.update(above.seq for above in chain)
                return None
            if slot.entry is None:
                if not chain:
                    return None
                point = self._above_rot(chain.pop(), slot)
                break
            chain.append(slot)
            seq = slot.entry.base
        else:
            point = self._valid[seq] if seq in self._valid else self.claimed(seq)
        for slot in reversed(chain):
            if point is None or slot.entry is None:
                return None
            try:
                state = self._computed(point, slot.entry)
            except Refused:
                self._unfounded.update(above.seq for above in chain if above.seq >= slot.seq)
                return None
            point = Point(slot.seq, slot.digest, state, slot.entry)
        return point

    def _above_rot(self, slot: Slot, base: Slot) -> Point[S] | None:
        """The point at an intact entry with a damaged base; it is believed if it may succeed the state before that."""
        assert slot.entry is not None
        if base.seq == slot.seq - 1 and base.digest == slot.entry.parent:
            return None  # its writer read these same bytes, and they are not an entry
        try:
            return Point(slot.seq, slot.digest, self._believed(self._below(base.seq), slot.entry), slot.entry)
        except Refused:
            return None

    def _below(self, seq: int) -> Point[S]:
        """The newest point before a damaged slot: one known to be valid, otherwise one that follows from its own
        base."""
        if known := [valid for valid in self._valid if valid < seq]:
            return self._valid[max(known)]
        found = (self.own(lower) for lower in range(seq - 1, max(-1, seq - 1 - DEEPEST), -1))
        return next((point for point in found if point is not None), Point())

    def _remember(self, point: Point[S]) -> None:
        """Remember a valid point; the newest REMEMBERED are kept."""
        self._valid.pop(point.seq, None)
        self._valid[point.seq] = point
        while len(self._valid) > REMEMBERED:
            self._valid.popitem(last=False)

    def _computed(self, point: Point[S], entry: Entry) -> S:
        by = By(entry.session, entry.account, entry.epoch, entry.at)
        try:
            state = self.machine.apply(
                point.state, entry.kind, entry.change, by, tuple(entry.passed_slots), entry.passed
            )
        except ValidationError as error:
            raise Refused("its change leads to no state") from error
        if dumps(state.model_dump(mode="json")) != dumps(entry.state):
            raise Refused("its state does not follow from its change")
        return self._in_format(entry, state)

    def _believed(self, point: Point[S], entry: Entry) -> S:
        state = self._parse(entry)
        if point.state is not None:
            self.machine.succeeds(point.state, state)
        return state

    def _parse(self, entry: Entry) -> S:
        try:
            return self._in_format(entry, self.machine.parse(entry.state))
        except ValidationError as error:
            raise Refused("its state is not a state") from error

    def _in_format(self, entry: Entry, state: S) -> S:
        """The state, if the entry's format is new enough for it. Raises Refused otherwise: clients that are too old for
        the state must notice that, or they would decide differently."""
        needed = self.machine.format_of(state)
        if needed > USUAL and entry.format < needed:
            raise Refused(f"it is written in format {entry.format} and needs {needed}")
        return state

    def _invalid(self, point: Point[S], slot: Slot, why: str) -> Point[S]:
        damage = Damage(slot.seq, f"the entry in slot {slot.seq} is invalid: {why}")
        return replace(point, seq=slot.seq, digest=slot.digest, damage=point.noting(damage))

    def junk(self, after: int, tail: int) -> dict[int, int]:
        """Slots after `after` up to `tail` with a size that no entry has, and that size. Uses one listing, and only if
        that costs less than reading all slots. Slots that the listing hides are read."""
        if tail - after <= LISTED:
            return {}
        return {seq: size for seq, size in self.log.sizes(after) if not SMALLEST <= size <= LARGEST and seq <= tail}

    def read(self, seq: int) -> Slot:
        """Read a slot once. Raises SlotEmpty (65), NewerFormat (78), StoreError."""
        try:
            data = self.log.peek(seq)
        except Missing as error:
            raise SlotEmpty(self.log, seq) from error
        try:
            return Slot(seq, digest(data), decode(data, self.machine.kinds, seq))
        except NotAnEntry as error:
            return Slot(seq, digest(data), None, str(error))
