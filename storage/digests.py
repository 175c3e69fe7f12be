"""SHA-256 of a file, whole and by blocks, computed once per upload; does not know stores.

The caller of an upload and the store that sends the file need hashes of the same bytes. `sharing` announces a pass to
the calling context, as storage.uploads does with its listener; a store without one makes its own.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import RawIOBase
from pathlib import Path
from typing import Protocol, runtime_checkable

from storage.contract import BlockHash
from storage.parallel import begin

_PIECE = 1 << 20


@runtime_checkable
class HashesBlocks(Protocol):
    """A store whose server hashes files by blocks."""

    def block_of(self, size: int) -> int | None:
        """Block size for a file of this size; None if it is hashed as a whole, or not at all. Raises StoreError."""
        ...


class BlockHasher:
    """The SHA-256 over the SHA-256 of every block, from pieces of any length."""

    def __init__(self, block: int) -> None:
        self._block, self._room = block, block
        self._inner, self._over = hashlib.sha256(), hashlib.sha256()

    def update(self, data: bytes) -> None:
        """The next bytes."""
        left = memoryview(data)
        while left:
            if not self._room:
                self._close()
            piece, left = left[: self._room], left[self._room :]
            self._inner.update(piece)
            self._room -= len(piece)

    def hash(self) -> BlockHash:
        """The hash, after the last byte."""
        if self._room < self._block:
            self._close()
        return BlockHash(self._block, self._over.hexdigest())

    def _close(self) -> None:
        self._over.update(self._inner.digest())
        self._inner, self._room = hashlib.sha256(), self._block


class Digests:
    """One pass over a file: each byte is read once, hashed once for the whole file and once for its block, if any.

    It runs in its own thread, or in `whole` with `beside=False`. The caller that asks gets the read errors.
    """

    def __init__(self, path: Path, block: int | None, *, beside: bool = True) -> None:
        self.path = path
        self.block = block
        self._blocks: list[bytes] = []
        self._whole: tuple[int, str] | None = None
        self._error: OSError | None = None
        self._news = threading.Condition()
        self._beside = beside
        if beside:
            threading.Thread(target=self._run, name="digests", daemon=True).start()

    @staticmethod
    def of(path: Path, block: int | None) -> Digests:
        """The pass shared in this context, if it is of this file and by these blocks; otherwise a new one."""
        shared = _shared.get()
        if shared is not None and shared.path == path and shared.block in (block, block or shared.block):
            return shared
        return Digests(path, block)

    def whole(self) -> tuple[int, str]:
        """Size and hex SHA-256 of the file. Raises OSError."""
        self._wait(lambda: self._whole is not None)
        assert self._whole is not None
        return self._whole

    def of_block(self, number: int) -> bytes:
        """SHA-256 of a block, counted from 0, when the pass has reached it. Raises OSError."""
        self._wait(lambda: self._whole is not None or len(self._blocks) > number)
        if number >= len(self._blocks):
            raise OSError(errno.ESTALE, "it became shorter while it was read")
        return self._blocks[number]

    def over_blocks(self) -> BlockHash:
        """SHA-256 over the SHA-256 of every block. Raises OSError."""
        assert self.block, "a pass without blocks"
        self.whole()
        return BlockHash(self.block, hashlib.sha256(b"".join(self._blocks)).hexdigest())

    def _wait(self, done: Callable[[], bool]) -> None:
        with self._news:
            if not self._beside and self._whole is None:
                self._pass()
            self._news.wait_for(lambda: done() or self._error is not None)
            if self._error is not None:
                raise self._error

    def _run(self) -> None:
        try:
            self._pass()
        except OSError as error:
            with self._news:
                self._error = error
                self._news.notify_all()

    def _pass(self) -> None:
        whole, size = hashlib.sha256(), 0
        with self.path.open("rb", buffering=0) as file:
            while data := _read(file, self.block or _PIECE):
                block = begin(_sha256, data) if self.block and self._beside else None
                whole.update(data)  # next to the block's hash, so that two cores each compute one
                size += len(data)
                if self.block:
                    self._add(block.result() if block else _sha256(data))
        with self._news:
            self._whole = size, whole.hexdigest()
            self._news.notify_all()

    def _add(self, block: bytes) -> None:
        with self._news:
            self._blocks.append(block)
            self._news.notify_all()


def _read(file: RawIOBase, length: int) -> bytes:
    """Exactly `length` bytes, fewer only at the end: one read of a raw file may return less."""
    pieces = [file.read(length) or b""]
    while pieces[-1] and (left := length - sum(map(len, pieces))):
        pieces.append(file.read(left) or b"")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


_shared: ContextVar[Digests | None] = ContextVar("digests", default=None)


@contextmanager
def sharing(digests: Digests) -> Iterator[None]:
    """Inside, `Digests.of` finds this pass."""
    token = _shared.set(digests)
    try:
        yield
    finally:
        _shared.reset(token)
