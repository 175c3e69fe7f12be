"""Slots of a log whose newest entry lies in one file that is replaced by compare-and-set; makes no such file."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol, cast

from storage.contract import Corrupt, Creates, Exists, Missing, Ref, Store, Unavailable
from storage.drive.errors import Changed
from storage.drive.frame import LIMIT, Frame, Newest, back_from, pack, unpack
from storage.log import ENTRY_LIMIT
from storage.slots import slot_name

MOST = LIMIT + 1 + ENTRY_LIMIT + 1
"""Bytes of a slot's file that are ever read."""
_TRIES = 10


class Replaces(Creates, Protocol):
    """A store that can replace a file only if it is unchanged."""

    def tag(self, ref: Ref) -> str:
        """What changes whenever the file does."""
        ...

    def replace(self, ref: Ref, data: bytes, tag: str) -> None:
        """Raises Changed if the file's tag is another one by now."""
        ...


class NewestSlots:
    """Most of slots.Slots, for slots from the chain's closing one on (docs/decisions/0005-drive-slots.md).

    An entry is stored as a file of its own before the next one replaces it. A copy that lost the race stays, unnamed.
    """

    def __init__(self, store: Store, drive: Replaces, prefix: str, file: Ref) -> None:
        self._store = store
        self._drive = drive
        self._prefix = prefix
        self._file = file
        self._frames: dict[Ref, Newest] = {}
        self._copies: dict[bytes, Ref] = {}
        """Where this client stored an entry that it wanted to replace: once, however often it tries."""

    def ref(self, seq: int) -> Ref:
        """Of a slot's own file; the newest one's is where it lies now. Raises Missing."""
        newest, _ = self._newest()
        if seq > newest.slot:
            raise Missing(f"{self._store.address}: there is no {slot_name(self._prefix, seq)}.")
        return self._file if seq == newest.slot else self._own(seq, newest)

    def read(self, seq: int, length: int) -> bytes:
        """As slots.Slots."""
        newest, raw = self._newest()
        if seq > newest.slot:
            raise Missing(f"{self._store.address}: there is no {slot_name(self._prefix, seq)}.")
        if seq < newest.slot:
            raw = self._store.read_range(self._own(seq, newest), 0, MOST)
        return raw.partition(b"\n")[2][:length]

    def tail(self) -> int:
        """The newest slot; one request."""
        return self._newest()[0].slot

    def create(self, seq: int, data: bytes) -> Ref:
        """As slots.Slots: raises Exists if the slot is taken."""
        for _ in range(_TRIES):
            tag = self._drive.tag(self._file)
            newest, raw = self._newest()  # after the tag: should it change between, the tag is stale
            if newest.slot >= seq:
                raise Exists(f"{self._store.address}: {slot_name(self._prefix, seq)} exists already.")
            if newest.slot < seq - 1:
                raise Missing(f"{self._store.address}: slot {seq - 1} of {self._prefix} is not written yet.")
            parent = self._copy(newest.slot, raw)
            back = back_from(seq, newest.first)
            frame = Newest(
                self._prefix, seq, newest.first, parent, parent if back == seq - 1 else self._own(back, newest)
            )
            try:
                self._drive.replace(self._file, pack(frame, data), tag)
            except Changed:
                continue  # by another writer, or only its metadata: look again
            return self._file
        raise Unavailable(f"{self._store.address}: {self._prefix} changes all the time. It is worth trying again.")

    def _newest(self) -> tuple[Newest, bytes]:
        try:
            raw = self._store.read_range(self._file, 0, MOST)
        except Missing as error:  # it was there before anything led to it
            raise Corrupt(
                f"{self._store.address}: the file {self._file} with the newest entry of the log under {self._prefix} "
                "is gone, or this token may not see it. Write and delete nothing; fork from a good checkpoint."
            ) from error
        return self._opened(self._file, raw), raw

    def _opened(self, ref: Ref, raw: bytes) -> Newest:
        try:
            frame, _ = unpack(raw)
            if isinstance(frame, Frame) or frame.log != self._prefix:
                raise ValueError("its frame is another log's")
        except ValueError as error:
            raise Corrupt(
                f"{self._store.address}: the file {ref} of the log under {self._prefix} is damaged ({error}). Restore "
                "an earlier version of that file in Drive (Manage versions), or fork from a good checkpoint."
            ) from error
        return frame

    def _own(self, seq: int, frame: Newest) -> Ref:
        """The file of a slot before `frame`'s."""
        while True:
            back = back_from(frame.slot, frame.first)
            ref, slot = (frame.back, back) if back >= seq else (frame.parent, frame.slot - 1)
            if ref is None or slot < seq:
                raise Missing(f"{self._store.address}: nothing leads to {slot_name(self._prefix, seq)}.")
            if slot == seq:
                return ref
            frame = self._frame(ref, slot)

    def _frame(self, ref: Ref, slot: int) -> Newest:
        known = self._frames.get(ref)
        if known is None:
            known = self._frames[ref] = self._opened(ref, self._store.read_range(ref, 0, LIMIT))
        if known.slot != slot:
            raise Corrupt(f"{self._store.address}: the file {ref} is not slot {slot} of the log under {self._prefix}.")
        return known

    def _copy(self, slot: int, raw: bytes) -> Ref:
        """A file with an entry's bytes."""
        if raw not in self._copies:
            self._copies = {raw: self._drive.reserve(1)[0]}
        ref = self._copies[raw]
        with suppress(Exists):  # ours: nobody else knows the id
            cast(Creates, self._store).create(ref, slot_name(self._prefix, slot), raw)
        return ref
