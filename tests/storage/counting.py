"""A store around a store that counts what it is asked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from storage.base import Ref, Stat, Store
from storage.wrapper import Wrapper


class CountingStore(Wrapper):
    """Counts requests by verb in `counts`; `reads` sums the point reads. `ref` asks nothing and is not counted."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def reads(self) -> int:
        """Point reads so far: get, read_range and stat."""
        return self.counts["get"] + self.counts["read_range"] + self.counts["stat"]

    @property
    def writes(self) -> int:
        """Requests so far that change the store."""
        return self.counts["put"] + self.counts["put_if_absent"] + self.counts["delete"]

    def put(self, name: str, data: bytes | Path) -> Ref:
        self._count("put")
        return super().put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        self._count("put_if_absent")
        return super().put_if_absent(name, data)

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        self._count("put")
        return super().put_new(name, data)

    def create(self, ref: Ref, name: str, data: bytes) -> Ref:
        self._count("put_if_absent")
        return super().create(ref, name, data)

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        self._count("get")
        return super().get(ref, limit=limit)

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        self._count("read_range")
        return super().read_range(ref, start, length)

    def stat(self, ref: Ref) -> Stat:
        self._count("stat")
        return super().stat(ref)

    def delete(self, ref: Ref) -> None:
        self._count("delete")
        super().delete(ref)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        self._count("list")
        return super().list(prefix, after=after)

    def now(self) -> float:
        self._count("now")
        return super().now()

    def _count(self, verb: str) -> None:
        with self._lock:
            self.counts[verb] += 1
