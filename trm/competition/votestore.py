"""Votes on disk: an append-only file of checked blocks, with one writer, bound to weights, tasks and settings.

    block     <length u32> <CRC-32 u32> <payload>
    payload   the first block's: the binding as JSON. Others: <new grids u32> <height u8, width u8, cells>…
              <votes: row u32, grid u32, halting logit f32>…

Grids are numbered in the order of the file and stored once; grid 2^32 - 1 means that the answer holds none. A block is
written at once, so a kill leaves whole blocks and perhaps a torn last one, which the next writer cuts off.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from filelock import FileLock, Timeout

from relay.core.errors import LeaseHeld
from relay.torch.faults import TaskError
from trm.data.arc.submission import COLORS, SIDE

_FRAME, _COUNT, _VOTE = struct.Struct("<II"), struct.Struct("<I"), struct.Struct("<IIf")
VOTE_BYTES = _VOTE.size
_NONE = 2**32 - 1
_MOST_BLOCK = 1 << 26


class Vote(NamedTuple):
    """The answer to one row: the grid's height, width and cells, or None."""

    row: int
    grid: bytes | None
    halt: float


class OtherVotes(TaskError):
    """The file holds votes of other weights, tasks or settings."""

    def __init__(self, path: Path, differing: Mapping[str, tuple[object, object]]) -> None:
        what = "; ".join(f"{name} {theirs} there, {ours} now" for name, (theirs, ours) in differing.items())
        super().__init__(
            f"The votes in {path} belong to another solve: {what}. Give the same weights, tasks and settings to go on "
            f"with it, or another --out to begin a new one. Nothing was changed."
        )
        self.path, self.differing = path, dict(differing)


class AnotherSolves(LeaseHeld):
    """Another process writes these votes."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"Another process is solving into {path} now. Wait for its end, or give another --out.")
        self.path = path


class NoRoom(TaskError):
    """A file cannot be written: the disk is full, or the folder is read-only."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"{path} cannot be written: {error.strerror or error}. What was there stays valid. Free some space or make "
            f"the folder writable, then run the same command again: it goes on."
        )


@dataclass
class Found:
    """What a file holds."""

    binding: dict[str, object] | None
    """None without a whole first block."""
    votes: list[Vote]
    grids: dict[bytes, int]
    good: int
    """Bytes up to the end of the last good block."""
    size: int
    damaged: bool
    """Whether a block in front of the end is not as it was written."""


def read(path: Path, rows: int = _NONE) -> Found:
    """All votes up to the first block that is torn, damaged, or not of a solve with so many rows. A missing file holds
    none."""
    found = Found(None, [], {}, 0, 0, False)
    grids, seen = list[bytes](), set[int]()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return found
    found.size = len(data)
    for payload, end in _blocks(data):
        try:
            if found.binding is None:
                found.binding = _binding(payload)
            else:
                found.votes += _unpacked(payload, grids, seen, rows)
        except (ValueError, IndexError, struct.error):
            break
        found.good = end
    found.grids = {grid: number for number, grid in enumerate(grids)}
    found.damaged = _is_whole_frame(data[found.good :])
    return found


def _is_whole_frame(rest: bytes) -> bool:
    """Whether a block that is not good was complete once: a torn one ends before its own length."""
    if len(rest) < _FRAME.size:
        return False
    length: int = _FRAME.unpack_from(rest)[0]
    return length <= len(rest) - _FRAME.size or length > _MOST_BLOCK


def _blocks(data: bytes) -> Iterator[tuple[bytes, int]]:
    at = 0
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        at += _FRAME.size
        payload = data[at : at + length]
        if length > _MOST_BLOCK or len(payload) < length or zlib.crc32(payload) != checksum:
            return
        at += length
        yield payload, at


def _binding(payload: bytes) -> dict[str, object]:
    found = json.loads(payload)
    if not isinstance(found, dict):
        raise ValueError("no binding")
    return found


def _unpacked(payload: bytes, grids: list[bytes], seen: set[int], rows: int) -> list[Vote]:
    """The votes of a block; its grids and rows are added. Raises ValueError, IndexError or struct.error for odd
    content."""
    (count,), at = _COUNT.unpack_from(payload), _COUNT.size
    for _ in range(count):
        height, width = payload[at], payload[at + 1]
        grid = payload[at : at + 2 + height * width]
        fits = 0 < height <= SIDE and 0 < width <= SIDE and len(grid) == 2 + height * width
        if not fits or max(grid[2:]) >= COLORS:
            raise ValueError("no grid")
        grids.append(grid)
        at += len(grid)
    votes = [
        Vote(row, None if number == _NONE else grids[number], halt)
        for row, number, halt in _VOTE.iter_unpack(payload[at:])
    ]
    found = {vote.row for vote in votes}
    if len(found) < len(votes) or found & seen or max(found, default=0) >= rows:
        raise ValueError("no votes of these rows")
    seen |= found
    return votes


def _packed(votes: Sequence[Vote], grids: dict[bytes, int]) -> bytes:
    """A block; numbers new grids in `grids`."""
    new, body = bytearray(), bytearray()
    before = len(grids)
    for vote in votes:
        if vote.grid is not None and vote.grid not in grids:
            grids[vote.grid] = len(grids)
            new += vote.grid
        number = _NONE if vote.grid is None else grids[vote.grid]
        body += _VOTE.pack(vote.row, number, vote.halt)
    return _framed(_COUNT.pack(len(grids) - before) + new + body)


def _framed(payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


class VoteStore:
    """The one writer of a file of votes. Opening takes its lock and changes nothing else."""

    def __init__(self, path: Path) -> None:
        """Raises AnotherSolves (73) if another process holds the lock, NoRoom if it cannot be taken."""
        self.path = path
        self._lock = FileLock(path.with_name(f"{path.name}.lock"))
        self._file: BinaryIO | None = None
        self._grids: dict[bytes, int] = {}
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise AnotherSolves(path) from None
        except OSError as error:
            raise NoRoom(path, error) from error

    def check(self, whole: bool = False, **binding: object) -> None:
        """Raises OtherVotes if the file holds votes of another binding, NoRoom. whole: nothing else may be bound."""
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise NoRoom(self.path, error) from error
        first = next(_blocks(data), None)
        if first is None:
            return
        try:
            theirs = _binding(first[0])
        except ValueError:  # `begin` sets the file aside
            return
        ours = (dict.fromkeys(theirs) if whole else {}) | binding
        differing = {key: (theirs.get(key), value) for key, value in ours.items() if theirs.get(key) != value}
        if differing:
            raise OtherVotes(self.path, differing)

    def begin(self, rows: int = _NONE, **binding: object) -> Found:
        """The votes of earlier processes, and the file ready for more of so many rows. Raises OtherVotes, NoRoom.

        A torn end is cut off. A damaged file is set aside as NAME.damaged, and its good part goes on.
        """
        self.check(whole=True, **binding)
        found = read(self.path, rows)
        try:
            if found.damaged:
                good = self.path.read_bytes()[: found.good]
                self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
                self.path.write_bytes(good)
            self._file = self.path.open("r+b" if self.path.exists() else "w+b", buffering=0)
            self._file.truncate(found.good)
            self._file.seek(found.good)
        except OSError as error:
            raise NoRoom(self.path, error) from error
        self._grids = found.grids
        if found.binding is None:
            self._write(_framed(json.dumps(binding).encode()))
        return found

    def append(self, votes: Sequence[Vote]) -> None:
        """Add a block; whole, or not at all. Raises NoRoom."""
        self._write(_packed(votes, self._grids))

    def sync(self) -> None:
        """Make everything durable: a submission never counts more votes than are here. Raises NoRoom."""
        assert self._file is not None, "begin comes first"
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise NoRoom(self.path, error) from error

    def close(self) -> None:
        """Let the file and its lock go."""
        if self._file is not None:
            self._file.close()
        self._lock.release()

    def _write(self, block: bytes) -> None:
        assert self._file is not None, "begin comes first"
        before = self._file.tell()
        try:
            written = 0
            while written < len(block):
                written += self._file.write(block[written:])
        except OSError as error:
            self._file.truncate(before)
            raise NoRoom(self.path, error) from error
