"""Bytes or a file that is to be stored, read in pieces from any thread; knows nothing of where they go."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
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
        """Just these bytes. Raises StoreError if the file has become shorter or cannot be read."""
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
    """What to tell of a file that cannot be read."""
    return StoreError(f"cannot read {path}, which was to be stored: {error.strerror}.")
