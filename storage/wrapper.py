"""Stores around a store: one that changes nothing and one that counts; knows nothing of what is inside."""

from __future__ import annotations

import builtins
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from storage.base import Creates, Ref, Stat, Store


class Wrapper:
    """Passes every verb on. Subclasses override what they change."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.address = inner.address
        self.unique_names = inner.unique_names

    @property
    def clock_is_local(self) -> bool:
        return self.inner.clock_is_local

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self.inner.put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self.inner.put_if_absent(name, data)

    def reserve(self, count: int) -> builtins.list[Ref]:
        """As base.Creates, around a store that is one."""
        return cast(Creates, self.inner).reserve(count)

    def claim(self, name: str, ref: Ref) -> None:
        """As base.Creates, around a store that is one."""
        cast(Creates, self.inner).claim(name, ref)

    def create(self, ref: Ref, name: str, data: bytes) -> Ref:
        """As base.Creates, around a store that is one."""
        return cast(Creates, self.inner).create(ref, name, data)

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        return self.inner.get(ref, limit=limit)

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        return self.inner.read_range(ref, start, length)

    def stat(self, ref: Ref) -> Stat:
        return self.inner.stat(ref)

    def delete(self, ref: Ref) -> None:
        self.inner.delete(ref)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        return self.inner.list(prefix, after=after)

    def now(self) -> float:
        return self.inner.now()

    def ref(self, name: str) -> Ref:
        return self.inner.ref(name)


def innermost(store: Store) -> Store:
    """The store inside all wrappers, for what only some kinds of store can tell."""
    while isinstance(store, Wrapper):
        store = store.inner
    return store


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
