"""A store in this process's memory: a real backend for tests and demonstrations."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from storage.contract import (
    Denied,
    Exists,
    Missing,
    Ref,
    Stat,
    StoreError,
    TooLong,
    check_name,
    check_prefix,
    check_ref,
)


@dataclass
class _Shelf:
    """State shared by all handles of one name."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """Keys of `objects`, sorted."""


_shelves: dict[str, _Shelf] = {}
_shelves_lock = threading.Lock()


class MemoryStore:
    """Handles of the same name in one process are clients of the same store; without a name it is private."""

    unique_names = True
    clock_is_local = False

    def __init__(
        self, name: str | None = None, *, clock: Callable[[], float] = time.time, read_only: bool = False
    ) -> None:
        self.address = f"memory://{name or ''}"
        self.read_only = read_only
        self._clock = clock
        with _shelves_lock:
            self._shelf = _Shelf() if name is None else _shelves.setdefault(name, _Shelf())

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self._put(name, data if isinstance(data, bytes) else read_source(data), replace=True)

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self._put(name, data, replace=False)

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        return self._put(name, data if isinstance(data, bytes) else read_source(data), replace=False)

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        data, _ = self._object(ref)
        if limit is not None and len(data) > limit:
            raise TooLong(f"{self.address}: {ref} has {len(data)} bytes, more than the {limit} allowed here.")
        return data

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise ValueError(f"negative range {start}+{length}")
        return self._object(ref)[0][start : start + length]

    def stat(self, ref: Ref) -> Stat:
        data, modified = self._object(ref)
        return Stat(ref, str(ref), len(data), modified)

    def delete(self, ref: Ref) -> None:
        name = check_ref(ref, self.address)
        self._check_writable(name)
        with self._shelf.lock:
            if self._shelf.objects.pop(name, None) is not None:
                del self._shelf.names[bisect_left(self._shelf.names, name)]

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        check_prefix(prefix)
        for name in self._names(prefix, after):
            try:
                yield self.stat(Ref(name))
            except Missing:
                continue  # deleted while we listed

    def now(self) -> float:
        return self._clock()

    def ref(self, name: str) -> Ref:
        return Ref(check_name(name))

    def _put(self, name: str, data: bytes, *, replace: bool) -> Ref:
        check_name(name)
        self._check_writable(name)
        with self._shelf.lock:
            new = name not in self._shelf.objects
            if not (new or replace):
                raise Exists(f"{self.address}: {name} exists already.")
            if new:
                self._check_no_folder(name)
                insort(self._shelf.names, name)
            self._shelf.objects[name] = (bytes(data), self._clock())
        return Ref(name)

    def _check_no_folder(self, name: str) -> None:
        """A name is never also the folder of another, as on a disk."""
        parts = name.split("/")
        above = next((p for p in ("/".join(parts[:n]) for n in range(1, len(parts))) if p in self._shelf.objects), None)
        at = bisect_left(self._shelf.names, f"{name}/")
        below = at < len(self._shelf.names) and self._shelf.names[at].startswith(f"{name}/")
        if above or below:
            raise Denied(f"{self.address}: {above or name} cannot be both an object and a folder; use another name.")

    def _check_writable(self, name: str) -> None:
        if self.read_only:
            raise Denied(f"{self.address} was opened for reading only; refused to change {name}.")

    def _object(self, ref: Ref) -> tuple[bytes, float]:
        name = check_ref(ref, self.address)
        with self._shelf.lock:
            if name not in self._shelf.objects:
                raise Missing(f"{self.address}: no {name}.")
            return self._shelf.objects[name]

    def _names(self, prefix: str, after: str | None) -> tuple[str, ...]:
        """Names with the prefix, after `after`, sorted."""
        with self._shelf.lock:
            start = bisect_left(self._shelf.names, prefix)
            if after is not None:
                start = max(start, bisect_right(self._shelf.names, after))
            end = bisect_left(self._shelf.names, prefix + "\x7f", lo=min(start, len(self._shelf.names)))
            return tuple(self._shelf.names[start:end])


def read_source(path: Path) -> bytes:
    """The content of a file to store; StoreError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}, which was to be stored: {error.strerror}.") from error
