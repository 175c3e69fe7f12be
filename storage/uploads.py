"""The parts of every upload: its bytes, a note for a later process, and reports of bytes sent.

`put` has no parameter for a listener, because few callers need one and every wrapper would have to pass it on. The
listener belongs to the calling context; threads of storage.transfer run in a copy of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from storage.contract import StoreError


@dataclass(frozen=True)
class Source:
    """`path` and `file` (a descriptor) for a file, `data` otherwise."""

    size: int
    data: bytes = b""
    path: Path | None = None
    file: int = -1

    @staticmethod
    @contextmanager
    def of(data: bytes | Path) -> Iterator[Source]:
        """Raises StoreError if a file cannot be opened."""
        if isinstance(data, bytes):
            yield Source(len(data), data)
            return
        try:
            file = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable(data, error) from error
        try:
            yield Source(os.fstat(file).st_size, path=data, file=file)
        finally:
            os.close(file)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly these bytes. Raises StoreError if the file has become shorter or cannot be read."""
        if self.path is None:
            return self.data[offset : offset + length]
        pieces: list[bytes] = []
        while length > 0:
            try:
                piece = os.pread(self.file, length, offset)
            except OSError as error:
                raise unreadable(self.path, error) from error
            if not piece:
                raise StoreError(f"{self.path} became shorter while it was being stored.")
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return b"".join(pieces)

    def block_hash(self, block: int) -> str:
        """Hex SHA-256 over the SHA-256 of each block."""
        over = hashlib.sha256()
        for offset in range(0, self.size, block):
            over.update(hashlib.sha256(self.read(offset, min(block, self.size - offset))).digest())
        return over.hexdigest()


def unreadable(path: Path, error: OSError) -> StoreError:
    """The error for a file that cannot be read."""
    return StoreError(f"cannot read {path}, which was to be stored: {error.strerror}.")


class UploadNote:
    """The note of one file's upload. Failing to keep it costs only time."""

    def __init__(self, source: Path) -> None:
        self._path = source.with_name(f".{source.name}.upload")
        self._temporary = self._path.with_name(f"{self._path.name}.tmp")

    def keep(self, said: Mapping[str, object]) -> None:
        """Writes all or nothing, readable by this user only: the session's address allows writing to it."""
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
            with os.fdopen(os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(said, file)
            self._temporary.replace(self._path)

    def read(self, limit: int) -> object:
        """The value in its first `limit` bytes, untrusted; None if it is missing or damaged."""
        try:
            with self._path.open("rb") as file:
                return json.loads(file.read(limit))
        except (OSError, ValueError, RecursionError):
            return None

    def drop(self) -> None:
        """Remove the note: the upload is over."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._temporary.unlink(missing_ok=True)  # left by a process killed while saving


_listener: ContextVar[Callable[[int], None] | None] = ContextVar("sent", default=None)


@contextmanager
def listening(listener: Callable[[int], None]) -> Iterator[None]:
    """Inside, `listener` is called with each number of bytes that has arrived; from any thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def sent(count: int) -> None:
    """Report that so many more bytes of the file have arrived."""
    listener = _listener.get()
    if listener is not None:
        listener(count)
