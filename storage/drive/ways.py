"""The slots of a log on Drive, which begins as a chain of ids and may go on by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from storage.contract import Missing, Ref, Store
from storage.drive.chain import ChainSlots, Closed, Drive
from storage.drive.directory import PREFIX
from storage.drive.frame import Newest, pack
from storage.drive.newest import NewestSlots, Replaces
from storage.slots import hint_name


class Both(Drive, Replaces, Protocol):
    """A store that can do either."""

    def join(self) -> None:
        """Try and record, once, whether this account can write."""
        ...


class DriveSlots:
    """As slots.Slots. Which way a log goes, its own slots say; `closing` says whether the next one is to end the chain.

    What is left of a chain is found by the chain; from its closing slot on, the file that it names leads back.
    """

    def __init__(
        self, store: Store, drive: Both, prefix: str, first: Callable[[bool], Ref], closing: Callable[[], bool]
    ) -> None:
        self._store = store
        self._drive = drive
        self._prefix = prefix
        self._closing = closing
        self._chain = ChainSlots(store, drive, prefix, first)
        self._newest: NewestSlots | None = None
        self._last = -1
        """The chain's closing slot, once it is known."""

    def ref(self, seq: int) -> Ref:
        newest = self._beyond(seq)
        return newest.ref(seq) if newest else self._chain.ref(seq)

    def create(self, seq: int, data: bytes) -> Ref:
        if self._prefix != PREFIX:
            self._drive.join()
        newest = self._beyond(seq)
        try:
            return newest.create(seq, data) if newest else self._extend(seq, data)
        except Closed as closed:
            return self._follow(closed).create(seq, data)
        except Missing:
            return self._really(newest, seq - 1).create(seq, data)

    def read(self, seq: int, length: int) -> bytes:
        newest = self._beyond(seq)
        try:
            return newest.read(seq, length) if newest else self._chain.read(seq, length)
        except Missing:
            return self._really(newest, seq).read(seq, length)

    def taken(self, seq: int) -> bool:
        newest = self._beyond(seq)
        return newest.tail() >= seq if newest else self._chain.taken(seq)

    def tail(self, low: int) -> int:
        if self._newest is None:
            tail = self._chain.tail(low)
            closed = self._chain.closed_at(tail) if tail >= 0 else None
            if closed is None:
                return tail
            self._follow(closed)
        assert self._newest is not None
        return self._newest.tail()

    def later(self, tail: int) -> bool:
        """The file that holds the newest entry hides none."""
        return self._newest is None and self._chain.later(tail)

    def put_advice(self, data: bytes) -> None:
        if self._newest is None:
            self._drive.claim(hint_name(self._prefix), self._chain.hint())
            self._store.put(hint_name(self._prefix), data)

    def advice(self, limit: int) -> bytes:
        return self._store.get(self._chain.hint(), limit=limit)

    @property
    def way(self) -> str:
        """How the log goes on, as far as it has been read: 'chain' or 'newest'."""
        return "newest" if self._newest else "chain"

    def _extend(self, seq: int, data: bytes) -> Ref:
        if not self._closing():
            return self._chain.create(seq, data)
        onward = self._drive.reserve(1)[0]
        self._chain.write_file(onward, f"{self._prefix}newest.json", pack(Newest(self._prefix, seq, seq), data))
        return self._chain.close(seq, data, onward)

    def _really(self, asked: NewestSlots | None, seq: int) -> NewestSlots:
        """Where a slot is that the chain does not have; inside an `except`: raises again if nobody has written it."""
        if asked or self.tail(-1) < seq or self._newest is None:
            raise
        return self._newest

    def _beyond(self, seq: int) -> NewestSlots | None:
        return self._newest if self._newest and seq > self._last else None

    def _follow(self, closed: Closed) -> NewestSlots:
        self._last = closed.last
        self._newest = NewestSlots(self._store, self._drive, self._prefix, closed.onward)
        return self._newest
