"""The store beneath a world: a new one of any backend, on the virtual clock; does not know the world's faults.

`STORES` names the backends that can be simulated (`RELAY_SIM_STORE`); those in `seeds.CI` run in CI.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from storage.base import Exists, Ref, Stat, Store, open_store
from storage.capabilities import Doubt
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.wrapper import Wrapper

Opener = Callable[[], Store]
"""Opens another client of one store."""

_number = count()


class AnyServer(MemoryStore):
    """No documentation says that only one writer wins a name, so a won slot is read back."""

    def doubt(self) -> Doubt:
        return Doubt(unknown=True)


class AsS3(Wrapper):
    """The server reports a hash of each object, so an upload is verified without reading it back."""

    def stat(self, ref: Ref) -> Stat:
        return replace(super().stat(ref), sha256=hashlib.sha256(self.inner.get(ref)).hexdigest())


class AsDropbox(AsS3):
    """Besides, a repeated send-if-absent of the same bytes reports that they exist, not that they existed before."""

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        try:
            return super().put_if_absent(name, data)
        except Exists:
            if self.inner.get(self.inner.ref(name)) != data:
                raise
            return self.inner.ref(name)

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        try:
            return super().put_new(name, data)
        except Exists:
            if self.inner.get(self.inner.ref(name)) != (data if isinstance(data, bytes) else data.read_bytes()):
                raise
            return self.inner.ref(name)


def in_memory(kind: Callable[[Store], Store], inner: type[MemoryStore] = MemoryStore) -> Callable[[Path], Opener]:
    def new(_: Path) -> Opener:
        store = kind(inner())
        return lambda: store

    return new


def local(folder: Path) -> Opener:
    return lambda: LocalStore(folder / "store")


def s3(name: str) -> Callable[[Path], Opener]:
    def new(_: Path) -> Opener:
        from tests.storage.s3.servers import server

        address = server(name).address(f"simulation-{next(_number)}")
        return lambda: open_store(address)

    return new


def dropbox(_: Path) -> Opener:
    from tests.storage.dropbox.handle import running

    return running().account().store


def drive(_: Path) -> Opener:
    from tests.storage.drive.handle import running
    from tests.storage.drive.stores import Drive

    return Drive(running().person()).store


MEMORY = "memory"
STORES: dict[str, Callable[[Path], Opener]] = {
    MEMORY: in_memory(Wrapper),
    "memory-as-s3": in_memory(AsS3, AnyServer),
    "memory-as-dropbox": in_memory(AsDropbox),
    "local": local,
    "s3-ministack": s3("ministack"),
    "s3-seaweedfs": s3("seaweedfs"),
    "dropbox": dropbox,
    "drive": drive,
}
"""Each makes a new store; one on a disk lies in the folder given. SDKs and servers are imported only where used."""


def like(on: str) -> str:
    """The memory that promises the same as this backend: a seed goes the same way on both, action by action.

    None is like Drive, where the log finds its slots by ids: other requests, so other chances for each to fail.
    """
    if on == "drive" or on.startswith(MEMORY):
        return on
    return next((name for name in STORES if name.endswith(f"-as-{on.partition('-')[0]}")), MEMORY)


@dataclass
class Shelf:
    """All objects that the clients of a store have put there."""

    clock: Callable[[], float]
    dates: dict[Ref, float] = field(default_factory=dict)
    names: dict[Ref, str] = field(default_factory=dict)
    refs: dict[str, Ref] = field(default_factory=dict)
    """The newest of each name."""

    def written(self, name: str, ref: Ref) -> Ref:
        """Something lies there from now on."""
        self.names[ref], self.refs[name], self.dates[ref] = name, ref, self.clock()
        return ref

    def name(self, ref: Ref) -> str:
        """The object that lies, or lay, at a Ref."""
        return self.names.get(ref, "what is not there")

    def dated(self, stat: Stat) -> Stat:
        """By the virtual clock."""
        return replace(stat, modified=self.dates[stat.ref])


class Dated(Wrapper):
    """A client of a store that lives on the virtual clock: `now`, and the dates of its writes."""

    def __init__(self, inner: Store, shelf: Shelf) -> None:
        super().__init__(inner)
        self._shelf = shelf

    @property
    def clock_is_local(self) -> bool:
        return False

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self._shelf.written(name, super().put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        ref = super().put_if_absent(name, data)
        return ref if ref in self._shelf.dates else self._shelf.written(name, ref)  # it may have been there, the same

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        ref = super().put_new(name, data)
        return ref if ref in self._shelf.dates else self._shelf.written(name, ref)

    def create(self, ref: Ref, name: str, data: bytes) -> Ref:
        return self._shelf.written(name, super().create(ref, name, data))

    def stat(self, ref: Ref) -> Stat:
        return self._shelf.dated(super().stat(ref))

    def delete(self, ref: Ref) -> None:
        super().delete(ref)
        self._shelf.dates.pop(ref, None)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        return map(self._shelf.dated, super().list(prefix, after=after))

    def now(self) -> float:
        return self._shelf.clock()
