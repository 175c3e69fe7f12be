"""A store that passes every verb to the store inside."""

from __future__ import annotations

import builtins
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from storage.contract import Creates, Ref, Stat, Store


@runtime_checkable
class Reconnects(Protocol):
    """A store with connections, or a wrapper around one."""

    def fresh(self) -> Store:
        """The same store on new connections, without remembered answers."""
        ...


def fresh(store: Store) -> Store:
    """The same store on new connections, to read a second time; itself if it has no connections."""
    return store.fresh() if isinstance(store, Reconnects) else store


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

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        return self.inner.put_new(name, data)

    def reserve(self, count: int) -> builtins.list[Ref]:
        """As base.Creates, if the store inside has it."""
        return cast(Creates, self.inner).reserve(count)

    def claim(self, name: str, ref: Ref) -> None:
        """As base.Creates, if the store inside has it."""
        cast(Creates, self.inner).claim(name, ref)

    def create(self, ref: Ref, name: str, data: bytes) -> Ref:
        """As base.Creates, if the store inside has it."""
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

    def fresh(self) -> Store:
        """As Reconnects: the same wrapper around the store inside on new connections."""
        inner = fresh(self.inner)
        if inner is self.inner:
            return self
        other = copy.copy(self)
        other.inner = inner
        return other


def innermost(store: Store) -> Store:
    """The store inside all wrappers, for abilities of some kinds of store."""
    while isinstance(store, Wrapper):
        store = store.inner
    return store
