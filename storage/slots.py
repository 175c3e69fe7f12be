"""The slots of a log on a store: as names, or as the kind of store keeps them; decides no race."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from storage.contract import Missing, Ref, Store, check_name
from storage.wrapper import innermost

LAST_SEQ = 2**53
"""No log has this slot or a later one."""


class Slots(Protocol):
    """Slots 0, 1, 2, … of one log, each written once. Reading sends requests and raises the store's errors."""

    def ref(self, seq: int) -> Ref:
        """The Ref of a slot. Raises Missing if no slot leads to it yet."""
        ...

    def create(self, seq: int, data: bytes) -> Ref:
        """Write an entry if the slot is empty; raises Exists as `put_if_absent` does, which proves nothing."""
        ...

    def read(self, seq: int, length: int) -> bytes:
        """The first `length` bytes of a slot's entry. Raises Missing."""
        ...

    def taken(self, seq: int) -> bool:
        """Whether the slot holds an entry, by a point read. Only Missing means no."""
        ...

    def tail(self, low: int) -> int:
        """The newest taken slot; `low` is taken or -1."""
        ...

    def later(self, tail: int) -> bool:
        """Whether there is any sign of a slot after `tail + 1`; advice, mostly one request."""
        ...

    def put_advice(self, data: bytes) -> None:
        """Write the log's hint, replacing the last one."""
        ...

    def advice(self, limit: int) -> bytes:
        """The log's hint. Raises Missing, or TooLong past `limit` bytes."""
        ...


@runtime_checkable
class MakesSlots(Protocol):
    """A store on which slots are not names."""

    def slots(self, store: Store, prefix: str) -> Slots:
        """The slots of a log; `store` is this one inside its wrappers."""
        ...


def slots_of(store: Store, prefix: str) -> Slots:
    """The slots of the log under a prefix."""
    inner = innermost(store)
    return inner.slots(store, prefix) if isinstance(inner, MakesSlots) else NamedSlots(store, prefix)


def slot_name(prefix: str, seq: int) -> str:
    """The name of a slot, on every store."""
    if not 0 <= seq < LAST_SEQ:
        raise ValueError(f"a log has no slot {seq}")
    return f"{prefix}{seq:020d}.json"


def hint_name(prefix: str) -> str:
    """The name of a log's hint, on every store."""
    return check_name(prefix.removesuffix("/") + ".hint")


def listed(store: Store, prefix: str, after: int = -1) -> list[int]:
    """Slot numbers beyond `after` that a listing shows, ascending; other names are not ours."""
    return [seq for seq, _ in listed_sizes(store, prefix, after)]


def listed_sizes(store: Store, prefix: str, after: int = -1) -> Iterator[tuple[int, int]]:
    """Slot numbers beyond `after` that a listing shows, ascending, and the bytes in each."""
    for stat in store.list(prefix, after=slot_name(prefix, after) if after >= 0 else None):
        number = stat.name.removeprefix(prefix).removesuffix(".json") if stat.name.endswith(".json") else ""
        if len(number) == 20 and number.isdecimal() and int(number) < LAST_SEQ:
            yield int(number), stat.size


def newest(taken: Callable[[int], bool], low: int) -> int:
    """The last taken number; `low` is taken (or -1) and none after the first free one is: doubles, then bisects."""
    step = 1
    while taken(low + step):
        low, step = low + step, 2 * step
    return bisect(taken, low, low + step)


def bisect(taken: Callable[[int], bool], low: int, high: int) -> int:
    """The last taken number; `low` is taken (or -1) and `high` is free."""
    while high - low > 1:
        middle = (low + high) // 2
        if taken(middle):
            low = middle
        else:
            high = middle
    return low


def stands(store: Store, ref: Callable[[int], Ref], seq: int) -> bool:
    """Whether a slot's object exists, by a point read. Only Missing means no."""
    if seq >= LAST_SEQ:
        return False  # no such name, even if an outsider filled the slots before
    try:
        store.stat(ref(seq))
    except Missing:
        return False
    return True


class NamedSlots:
    """A slot is the object `<prefix><20 digits>.json` of a store with unique names."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def ref(self, seq: int) -> Ref:
        return self._store.ref(slot_name(self._prefix, seq))

    def create(self, seq: int, data: bytes) -> Ref:
        return self._store.put_if_absent(slot_name(self._prefix, seq), data)

    def read(self, seq: int, length: int) -> bytes:
        return self._store.read_range(self.ref(seq), 0, length)

    def taken(self, seq: int) -> bool:
        return stands(self._store, self.ref, seq)

    def tail(self, low: int) -> int:
        return newest(self.taken, low)

    def later(self, tail: int) -> bool:
        return any(seq > tail + 1 for seq in listed(self._store, self._prefix, tail))

    def put_advice(self, data: bytes) -> None:
        self._store.put(hint_name(self._prefix), data)

    def advice(self, limit: int) -> bytes:
        return self._store.get(self._store.ref(hint_name(self._prefix)), limit=limit)
