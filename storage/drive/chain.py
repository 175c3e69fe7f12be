"""Slots that are found by ids which earlier slots publish; knows nothing of how Drive makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from storage.contract import Corrupt, Creates, LostEntry, Missing, Ref, Store
from storage.drive.errors import UsedUp
from storage.drive.frame import LIMIT, PAGE, SPAN, Frame, Newest, lengths, pack, unpack
from storage.log import ENTRY_LIMIT
from storage.slots import bisect, slot_name, stands


class Drive(Creates, Protocol):
    """What slots need of the store beyond its verbs."""

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

    `create` raises Closed where the chain has ended; the other verbs find nothing there.
    """

    def __init__(self, store: Store, drive: Drive, prefix: str, first: Callable[[bool], Ref]) -> None:
        """`first(bind)` is the Ref of slot 0; Missing if it has none and is not to get one now."""
        self._store = store
        self._drive = drive
        self._prefix = prefix
        self._first = first
        self._composed: dict[int, Frame] = {}
        """What was made for slots that this client tried to create: an intent is sent again with the same bytes."""
        self._fetched: dict[int, bytes] = {}
        """The tail, which was looked at before it is read: it is not asked for twice."""
        self._open: set[int] = set()
        """Slots that were seen not to be closing ones."""

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
        """As `create`, for the last slot of a chain; slot 0 still says where the folder is."""
        ref = self._first(True) if seq == 0 else self._following(seq - 1)
        folder = self._drive.folder if seq == 0 else None
        return self._write(seq, ref, Frame(self._prefix, seq, None, onward=onward, folder=folder), data)

    def closed_at(self, seq: int) -> Closed | None:
        """Whether a taken slot is the closing one."""
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
        """A file that is no slot."""
        cast(Creates, self._store).create(ref, name, data)

    def _write(self, seq: int, ref: Ref, frame: Frame, data: bytes) -> Ref:
        """Create a slot's file. A burnt id proves that an entry was there."""
        name = slot_name(self._prefix, seq)
        try:
            return cast(Creates, self._store).create(ref, name, pack(frame, data))
        except UsedUp as error:
            raise LostEntry(
                f"{self._store.address}: the log entry {name} was deleted; Drive never gives its id again. Write and "
                "delete nothing; restore that file from a backup under another run, or fork from a good checkpoint.",
                seq,
            ) from error

    def read(self, seq: int, length: int) -> bytes:
        raw = self._fetched.pop(seq, None) or self._raw(seq)
        try:
            data = self._opened(seq, self.ref(seq), raw)[1]
        except ValueError:
            data = raw  # as it is: the reader of entries finds nothing in it
        return data[:length]

    def taken(self, seq: int) -> bool:
        return stands(self._store, self.ref, seq)

    def tail(self, low: int) -> int:
        """Up one page after another by doubling, then within the last one."""
        if not self.taken(low + 1):
            return low
        page, step = (low + 1) // PAGE, 1
        while self.taken((page + step) * PAGE):
            page, step = page + step, 2 * step
        page = bisect(lambda number: self.taken(number * PAGE), page, page + step)
        return bisect(self.taken, max(low + 1, page * PAGE), (page + 1) * PAGE)

    def later(self, tail: int) -> bool:
        """The slot after the next has its id mostly already; a point read is better evidence than any listing."""
        return (tail + 1) % PAGE != 0 and self.taken(tail + 2)

    def hint(self) -> Ref:
        """Where the log's hint lies. Raises Missing."""
        hint = self._head(0).hint
        if hint is None:
            raise Missing(f"{self._store.address}: the log under {self._prefix} has no hint.")
        return hint

    def _following(self, seq: int) -> Ref:
        """Where the slot after a taken one is, as that one says; its page says it where that one cannot be read."""
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
        """The frame of a page's head. Raises Missing, or Corrupt where it leads nowhere."""
        return self._head_at(seq, self.ref(seq))

    def _top(self, seq: int) -> Frame:
        """Of a head that publishes heads: found from slot 0 on, so a number that somebody made up costs one look."""
        frame = self._head_at(0, self._first(False))
        for top in range(SPAN, seq + 1, SPAN):
            frame = self._head_at(top, frame.tops[-1])
        return frame

    def _head_at(self, seq: int, ref: Ref) -> Frame:
        """The same where its Ref is known; read once."""
        known = self._drive.frames.get(ref)
        if known is None:
            try:
                known = self._opened(seq, ref, self._store.read_range(ref, 0, LIMIT))[0]
            except ValueError as error:
                raise Corrupt(
                    f"{self._store.address}: {slot_name(self._prefix, seq)} is damaged ({error}), so nothing after it "
                    "can be found. Restore an earlier version of that file in Drive (Manage versions), or fork."
                ) from error
        if known.onward:
            raise Missing(f"{self._store.address}: the chain under {self._prefix} ends with slot {seq}.")
        return known

    def _opened(self, seq: int, ref: Ref, raw: bytes) -> tuple[Frame, bytes]:
        """Frame and entry of a slot. Raises ValueError if the frame is not this slot's."""
        frame, data = unpack(raw)
        if isinstance(frame, Newest) or (frame.log, frame.slot) != (self._prefix, seq):
            raise ValueError("its frame is another slot's")
        if not self._agrees(frame):
            raise ValueError("its frame contradicts an earlier one")
        if frame.ids:
            self._drive.frames[ref] = frame
        return frame, data

    def _agrees(self, frame: Frame) -> bool:
        """Whether a frame names as next what its page does: two writers who were led apart would both win a slot."""
        if frame.ids:
            return self._page_after(frame.slot) in (None, frame.ids[-1])
        return frame.next is None or frame.next == self.ref(frame.slot + 1)

    def _page_after(self, head: int) -> Ref | None:
        """Where the next page's head is, as an earlier slot says; None if only this one can say it."""
        return None if head % SPAN == 0 else self.ref(head + PAGE)

    def _compose(self, seq: int) -> Frame:
        """What this slot will say."""
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
