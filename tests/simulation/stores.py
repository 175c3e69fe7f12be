"""The store beneath a world: a new one of any backend, living on the virtual clock; knows nothing of what befalls it.

Backends are those of the contract suite (tests/storage/backends.py) and those of memory below. A backend that is
registered there can be simulated on by its name (`RELAY_SIM_STORE`), and is by CI once it is in `seeds.CI`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from storage.base import Exists, Ref, Stat, Store
from storage.memory import MemoryStore
from storage.wrapper import Wrapper

Clients = tuple[Store, Store]
"""Of one new store."""


def opened(on: str, folder: Path) -> Clients:
    """Two clients of a new store of the backend named `on`; one on a disk lies in `folder`."""
    if on in MEMORIES:
        store = MEMORIES[on](MemoryStore())
        return store, store
    from tests.storage.backends import BACKENDS  # other backends need their SDKs and servers

    return BACKENDS[on](folder)


def like(on: str) -> str:
    """The memory that promises what this backend does: a seed goes the same way on both, action by action."""
    return next((name for name in MEMORIES if name.endswith(f"-as-{on.partition('-')[0]}")), MEMORY)


class AsS3(Wrapper):
    """The server tells a hash of what it holds, so an upload is verified without reading it back."""

    def stat(self, ref: Ref) -> Stat:
        return replace(super().stat(ref), sha256=hashlib.sha256(self.inner.get(ref)).hexdigest())


class AsDropbox(AsS3):
    """Besides, whoever sends the same bytes again if absent is told that they are there, not that they were."""

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        try:
            return super().put_if_absent(name, data)
        except Exists:
            if self.inner.get(self.inner.ref(name)) != data:
                raise
            return self.inner.ref(name)


MEMORY = "memory"
MEMORIES: dict[str, Callable[[Store], Store]] = {MEMORY: Wrapper, "memory-as-s3": AsS3, "memory-as-dropbox": AsDropbox}
"""By what another kind of store promises beyond the contract."""


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
        ref = super().put(name, data)
        self._dates[ref] = self._clock()
        return ref

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        ref = super().put_if_absent(name, data)
        self._dates.setdefault(ref, self._clock())  # it may have been there, the same
        return ref

    def delete(self, ref: Ref) -> None:
        super().delete(ref)
        self._dates.pop(ref, None)

    def stat(self, ref: Ref) -> Stat:
        return self._dated(super().stat(ref))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        return map(self._dated, super().list(prefix, after=after))

    def now(self) -> float:
        return self._clock()

    def _dated(self, stat: Stat) -> Stat:
        return replace(stat, modified=self._dates[stat.ref])
