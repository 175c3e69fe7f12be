"""The backends the contract suite runs against: for each a factory of clients of one new store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

from storage.base import Store, open_store
from storage.local import LocalStore
from storage.memory import MemoryStore

_number = count()


class Opener(Protocol):
    """Makes clients of one new store."""

    def __call__(self, *, read_only: bool = False) -> Store: ...


def memory(_: Path) -> Opener:
    return partial(MemoryStore, f"contract-{next(_number)}")


def local(folder: Path) -> Opener:
    return partial(LocalStore, folder / "store")


def dropbox(_: Path) -> Opener:
    from tests.storage.dropbox.handle import running

    return running().account().store


def drive(_: Path) -> Opener:
    from tests.storage.drive.handle import running
    from tests.storage.drive.stores import Drive

    return Drive(running().person()).store


def hf(_: Path) -> Opener:
    from tests.storage.hf.handle import running

    return partial(open_store, running().bucket())


def s3(name: str) -> Callable[[Path], Opener]:
    """Of a real server, which the first test that wants it starts."""

    def opener(_: Path) -> Opener:
        from tests.storage.s3.servers import server

        return partial(open_store, server(name).address(f"contract-{next(_number)}"))

    return opener


BACKENDS: dict[str, Callable[[Path], Opener]] = {
    "memory": memory,
    "local": local,
    "s3-ministack": s3("ministack"),
    "s3-seaweedfs": s3("seaweedfs"),
    "hf": hf,
    "dropbox": dropbox,
    "drive": drive,
}

FOLDERS_STAY = {"dropbox"}
"""Backends on which a name that was once a folder of names stays Denied."""

WITHOUT_NAMES = {"drive"}
"""Backends on which names are not unique: what was put is found by its Ref alone."""

SERVERS = [name for name in BACKENDS if name not in ("memory", "local")]
"""Backends asked over HTTP: up to a hundred times slower than the others."""
