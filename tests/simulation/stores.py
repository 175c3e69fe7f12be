"""The store beneath a world: a new one of any backend, living on the virtual clock; knows nothing of what befalls it.

Backends are those of the contract suite (tests/storage/backends.py) and those of memory below. A backend that is
registered there can be simulated on by its name (`RELAY_SIM_STORE`), and is by CI once it is in `seeds.CI`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from storage.base import Ref, Stat, Store
from storage.memory import MemoryStore
from storage.wrapper import Wrapper

MEMORY, HASHING = "memory", "memory-hashing"
HASHES = ("s3-", "dropbox", HASHING)
"""Their servers tell a hash of what they hold, so that an upload is verified without reading it back."""

Clients = tuple[Store, Store]
"""Of one new store."""


def opened(on: str, folder: Path) -> Clients:
    """Two clients of a new store of the backend named `on`; one on a disk lies in `folder`."""
    if on in (MEMORY, HASHING):
        store = MemoryStore() if on == MEMORY else Hashing(MemoryStore())
        return store, store
    from tests.storage.backends import BACKENDS  # other backends need their SDKs and servers

    return BACKENDS[on](folder)


def like(on: str) -> str:
    """The memory that promises what this backend does: a seed goes the same way on both, action by action."""
    return HASHING if on.startswith(HASHES) else MEMORY


class Hashing(Wrapper):
    """A store that tells the SHA-256 of what it holds."""

    def stat(self, ref: Ref) -> Stat:
        return replace(super().stat(ref), sha256=hashlib.sha256(self.inner.get(ref)).hexdigest())


class Dated(Wrapper):
    """A client of a store that lives on the virtual clock: `now`, and the dates of what was written through it."""

    def __init__(self, inner: Store, clock: Callable[[], float], dates: dict[Ref, float]) -> None:
        """`dates` is shared by all clients of a store."""
        super().__init__(inner)
        self._clock, self._dates = clock, dates

    @property
    def clock_is_local(self) -> bool:
        return False

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self._written(super().put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self._written(super().put_if_absent(name, data))

    def stat(self, ref: Ref) -> Stat:
        return self._dated(super().stat(ref))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        return map(self._dated, super().list(prefix, after=after))

    def now(self) -> float:
        return self._clock()

    def _written(self, ref: Ref) -> Ref:
        self._dates[ref] = self._clock()
        return ref

    def _dated(self, stat: Stat) -> Stat:
        return replace(stat, modified=self._dates[stat.ref])
