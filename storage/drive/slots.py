"""The slots of a log on Drive, which begins as a chain of ids and may go on by compare-and-set of one file.

docs/decisions/0005-drive-slots.md. Slots of a chain are found by ids that earlier slots publish; later the newest
entry lies in one file that is replaced. Requests go through `store`, which may be wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

from storage.contract import Corrupt, Creates, Exists, LostEntry, Missing, Ref, Store, Unavailable
from storage.drive.directory import PREFIX
from storage.drive.errors import Changed, UsedUp
from storage.drive.frame import LIMIT, PAGE, SPAN, Frame, Newest, back_from, lengths, pack, unpack
from storage.log import ENTRY_LIMIT
from storage.slots import bisect, hint_name, slot_name, stands


class Drive(Creates, Protocol):
    """The part of the store that slots use beyond its verbs."""

    @property
    def folder(self) -> str:
        """The folder's id."""
        ...

    @property
    def frames(self) -> dict[Ref, Frame]:
        """Frames of page heads read so far: they never change."""
        ...


class Closed(Exception):
    """The chain ends before this slot and goes on in the file `onward`."""

    def __init__(self, last: int, onward: Ref) -> None:
        super().__init__(f"closed after slot {last}")
        self.last, self.onward = last, onward


class ChainSlots:
    """Most of slots.Slots (docs/decisions/0005-drive-slots.md); requests go through `store`, which may be wrapped.

    `create` raises Closed after the end of the chain; the other verbs find nothing there.
    """

    def __init__(self, store: Store, drive: Drive, prefix: str, first: Callable[[bool], Ref]) -> None:
        """`first(bind)` is the Ref of slot 0; it raises Missing if there is none and `bind` is false."""
        self._store = store
        self._drive = drive
        self._prefix = prefix
        self._first = first
        self._composed: dict[int, Frame] = {}
        """The ids of slots that this client tried to create: an intent is sent again with the same bytes."""
        self._fetched: dict[int, bytes] = {}
        """The tail's bytes, kept from the look at the tail, so that they are requested once."""
        self._open: set[int] = set()
        """Slots known not to close the chain."""

    def ref(self, seq: int) -> Ref:
        if seq == 0:
            return self._first(False)
        if seq % PAGE == 0:
            top = (seq - 1) // SPAN * SPAN
            return self._top(top).tops[(seq - top) // PAGE - 1]
        head = seq // PAGE * PAGE
        return self._head(head).ids[seq - head - 1]

    def create(self, seq: int, data: bytes) -> Ref:
        ref = self._first(True) if seq == 0 else self._following(seq - 1)
        frame = self._composed.get(seq) or self._composed.setdefault(seq, self._compose(seq))
        self._write(seq, ref, frame, data)
        self._open = {seq}
        return ref

    def close(self, seq: int, data: bytes, onward: Ref) -> Ref:
        """As `create`, for the last slot of a chain; slot 0 still names the folder."""
        ref = self._first(True) if seq == 0 else self._following(seq - 1)
        folder = self._drive.folder if seq == 0 else None
        return self._write(seq, ref, Frame(self._prefix, seq, None, onward=onward, folder=folder), data)

    def closed_at(self, seq: int) -> Closed | None:
        """The end of the chain if a taken slot closes it; otherwise None."""
        if seq in self._open:
            return None
        raw = self._raw(seq)
        self._fetched = {seq: raw}
        try:
            frame = self._opened(seq, self.ref(seq), raw)[0]
        except ValueError:
            return None
        if frame.onward:
            return Closed(seq, frame.onward)
        self._open = {seq}
        return None

    def write_file(self, ref: Ref, name: str, data: bytes) -> None:
        """Create a file that is not a slot."""
        cast(Creates, self._store).create(ref, name, data)

    def _write(self, seq: int, ref: Ref, frame: Frame, data: bytes) -> Ref:
        """Create a slot's file. An id that Drive refuses for ever proves that an entry was there."""
        name = slot_name(self._prefix, seq)
        try:
            return cast(Creates, self._store).create(ref, name, pack(frame, data))
        except UsedUp as error:
            raise LostEntry(
                f"{self._store.address}: the log entry {name} was deleted; Drive never gives its id again. Write and "
                "delete nothing. Restore that file from a backup under another run, or fork from a good checkpoint.",
                seq,
            ) from error

    def read(self, seq: int, length: int) -> bytes:
        raw = self._fetched.pop(seq, None) or self._raw(seq)
        try:
            data = self._opened(seq, self.ref(seq), raw)[1]
        except ValueError:
            data = raw  # unchanged: the entry's reader will call it invalid
        return data[:length]

    def taken(self, seq: int) -> bool:
        return stands(self._store, self.ref, seq)

    def tail(self, low: int) -> int:
        """Doubles over the pages, then bisects within the last one."""
        if not self.taken(low + 1):
            return low
        page, step = (low + 1) // PAGE, 1
        while self.taken((page + step) * PAGE):
            page, step = page + step, 2 * step
        page = bisect(lambda number: self.taken(number * PAGE), page, page + step)
        return bisect(self.taken, max(low + 1, page * PAGE), (page + 1) * PAGE)

    def later(self, tail: int) -> bool:
        """Checks the slot after the next by a point read, better evidence than a listing; its id is mostly known."""
        return (tail + 1) % PAGE != 0 and self.taken(tail + 2)

    def hint(self) -> Ref:
        """The Ref of the log's hint. Raises Missing."""
        hint = self._head(0).hint
        if hint is None:
            raise Missing(f"{self._store.address}: the log under {self._prefix} has no hint.")
        return hint

    def _following(self, seq: int) -> Ref:
        """The Ref of the slot after a taken one, from that slot; if that is unreadable, from its page's head."""
        if seq in self._open:
            return self.ref(seq + 1)
        frame = self._frame(seq)
        if frame and frame.onward:
            raise Closed(seq, frame.onward)
        return (frame.next if frame else None) or self.ref(seq + 1)

    def _frame(self, seq: int) -> Frame | None:
        if seq % PAGE == 0:
            return self._head(seq)
        try:
            return self._opened(seq, self.ref(seq), self._fetched.get(seq) or self._raw(seq))[0]
        except ValueError:
            return None

    def _raw(self, seq: int) -> bytes:
        return self._store.read_range(self.ref(seq), 0, LIMIT + 1 + ENTRY_LIMIT + 1)

    def _head(self, seq: int) -> Frame:
        """The frame of a page's head. Raises Missing, or Corrupt if it names no page."""
        return self._head_at(seq, self.ref(seq))

    def _top(self, seq: int) -> Frame:
        """The frame of a head that publishes heads. Found from slot 0 on, so an invented number costs one read."""
        frame = self._head_at(0, self._first(False))
        for top in range(SPAN, seq + 1, SPAN):
            frame = self._head_at(top, frame.tops[-1])
        return frame

    def _head_at(self, seq: int, ref: Ref) -> Frame:
        """The same with a known Ref; read once."""
        known = self._drive.frames.get(ref)
        if known is None:
            try:
                known = self._opened(seq, ref, self._store.read_range(ref, 0, LIMIT))[0]
            except ValueError as error:
                raise Corrupt(
                    f"{self._store.address}: {slot_name(self._prefix, seq)} is damaged ({error}), so no later slot "
                    "can be found. Restore an earlier version of that file in Drive (Manage versions), or fork."
                ) from error
        if known.onward:
            raise Missing(f"{self._store.address}: the chain under {self._prefix} ends with slot {seq}.")
        return known

    def _opened(self, seq: int, ref: Ref, raw: bytes) -> tuple[Frame, bytes]:
        """Frame and entry of a slot. Raises ValueError unless the frame is this slot's."""
        frame, data = unpack(raw)
        if isinstance(frame, Newest) or (frame.log, frame.slot) != (self._prefix, seq):
            raise ValueError("its frame is another slot's")
        if not self._agrees(frame):
            raise ValueError("its frame contradicts an earlier one")
        if frame.ids:
            self._drive.frames[ref] = frame
        return frame, data

    def _agrees(self, frame: Frame) -> bool:
        """Whether a frame and its page name the same next slot. Otherwise two writers could both win a slot."""
        if frame.ids:
            return self._page_after(frame.slot) in (None, frame.ids[-1])
        return frame.next is None or frame.next == self.ref(frame.slot + 1)

    def _page_after(self, head: int) -> Ref | None:
        """The Ref of the next page's head, from an earlier slot; None if only this page names it."""
        return None if head % SPAN == 0 else self.ref(head + PAGE)

    def _compose(self, seq: int) -> Frame:
        """The frame of a new slot."""
        if seq % PAGE:
            return Frame(self._prefix, seq, self.ref(seq + 1))
        following = self._page_after(seq)
        ids, tops = lengths(seq)
        fresh = self._drive.reserve(ids - bool(following) + max(0, tops - 1) + (seq == 0))
        page = (*fresh[: PAGE - 1], following) if following else tuple(fresh[:PAGE])
        rest = fresh[PAGE:]
        return Frame(
            self._prefix,
            seq,
            page[0],
            ids=page,
            tops=(page[-1], *rest[: PAGE - 1]) if tops else (),
            hint=rest[PAGE - 1] if seq == 0 else None,
            folder=self._drive.folder if seq == 0 else None,
        )


MOST = LIMIT + 1 + ENTRY_LIMIT + 1
"""Limit of a read of a slot's file, bytes."""
_TRIES = 10


class Replaces(Creates, Protocol):
    """A store that can replace a file only if it is unchanged."""

    def tag(self, ref: Ref) -> str:
        """A tag that changes with every change of the file."""
        ...

    def replace(self, ref: Ref, data: bytes, tag: str) -> None:
        """Raises Changed if the file's tag has changed."""
        ...


class NewestSlots:
    """Most of slots.Slots, for slots from the chain's closing one on (docs/decisions/0005-drive-slots.md).

    An entry is stored as a file of its own before the next one replaces it. The copy of a lost race stays, unnamed.
    """

    def __init__(self, store: Store, drive: Replaces, prefix: str, file: Ref) -> None:
        self._store = store
        self._drive = drive
        self._prefix = prefix
        self._file = file
        self._frames: dict[Ref, Newest] = {}
        self._copies: dict[bytes, Ref] = {}
        """The file with a copy of the entry that this client wants to replace: made once for all attempts."""

    def ref(self, seq: int) -> Ref:
        """The Ref of a slot's own file; for the newest slot, the file that is replaced. Raises Missing."""
        newest, _ = self._newest()
        if seq > newest.slot:
            raise Missing(f"{self._store.address}: no {slot_name(self._prefix, seq)}.")
        return self._file if seq == newest.slot else self._own(seq, newest)

    def read(self, seq: int, length: int) -> bytes:
        """As slots.Slots."""
        newest, raw = self._newest()
        if seq > newest.slot:
            raise Missing(f"{self._store.address}: no {slot_name(self._prefix, seq)}.")
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
            newest, raw = self._newest()  # after the tag: if the file changes in between, the tag is stale
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
                continue  # changed by another writer, or only its metadata: read again
            return self._file
        raise Unavailable(f"{self._store.address}: {self._prefix} changes too often. Try again.")

    def _newest(self) -> tuple[Newest, bytes]:
        try:
            raw = self._store.read_range(self._file, 0, MOST)
        except Missing as error:  # the file existed before any slot named it
            raise Corrupt(
                f"{self._store.address}: the file {self._file} with the newest entry of the log under {self._prefix} "
                "is missing, or this token may not see it. Write and delete nothing; fork from a good checkpoint."
            ) from error
        return self._opened(self._file, raw), raw

    def _opened(self, ref: Ref, raw: bytes) -> Newest:
        try:
            frame, _ = unpack(raw)
            if isinstance(frame, Frame) or frame.log != self._prefix:
                raise ValueError("its frame belongs to another log")
        except ValueError as error:
            raise Corrupt(
                f"{self._store.address}: the file {ref} of the log under {self._prefix} is damaged ({error}). Restore "
                "an earlier version of that file in Drive (Manage versions), or fork from a good checkpoint."
            ) from error
        return frame

    def _own(self, seq: int, frame: Newest) -> Ref:
        """The file of a slot before the one of `frame`."""
        while True:
            back = back_from(frame.slot, frame.first)
            ref, slot = (frame.back, back) if back >= seq else (frame.parent, frame.slot - 1)
            if ref is None or slot < seq:
                raise Missing(f"{self._store.address}: no slot leads to {slot_name(self._prefix, seq)}.")
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
        with suppress(Exists):  # ours: no other client knows the id
            cast(Creates, self._store).create(ref, slot_name(self._prefix, slot), raw)
        return ref


class Both(Drive, Replaces, Protocol):
    """A store for both kinds of slots."""

    def join(self) -> None:
        """Test and record, once, whether this account can write."""
        ...


class DriveSlots:
    """As slots.Slots. A log's own slots show which way it goes; `closing` decides whether the next one ends the chain.

    The chain finds its own slots; from the closing slot on, the file that it names leads back.
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
        """The file with the newest entry hides no later one."""
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
        """The slots for a slot that the chain lacks; inside an `except`: raises again if it was never written."""
        if asked or self.tail(-1) < seq or self._newest is None:
            raise
        return self._newest

    def _beyond(self, seq: int) -> NewestSlots | None:
        return self._newest if self._newest and seq > self._last else None

    def _follow(self, closed: Closed) -> NewestSlots:
        self._last = closed.last
        self._newest = NewestSlots(self._store, self._drive, self._prefix, closed.onward)
        return self._newest
