"""The backends the contract suite runs against: a factory each of two clients of one new store."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from storage.base import Store, open_store
from storage.local import LocalStore
from storage.memory import MemoryStore

Clients = tuple[Store, Store]

_number = count()


def memory(_: Path) -> Clients:
    name = f"contract-{next(_number)}"
    return MemoryStore(name), MemoryStore(name)


def local(folder: Path) -> Clients:
    return LocalStore(folder / "store"), LocalStore(folder / "store")


def dropbox(_: Path) -> Clients:
    from tests.storage.dropbox.handle import running

    person = running().account()
    return person.store(), person.store()


def drive(_: Path) -> Clients:
    from tests.storage.drive.handle import running
    from tests.storage.drive.stores import Drive

    account = Drive(running().person())
    return account.store(), account.store()


def s3(name: str) -> Callable[[Path], Clients]:
    """Of a real server, which the first test that wants it starts."""

    def clients(_: Path) -> Clients:
        from tests.storage.s3.servers import server

        address = server(name).address(f"contract-{next(_number)}")
        return open_store(address), open_store(address)

    return clients


BACKENDS: dict[str, Callable[[Path], Clients]] = {
    "memory": memory,
    "local": local,
    "s3-ministack": s3("ministack"),
    "s3-seaweedfs": s3("seaweedfs"),
    "dropbox": dropbox,
    "drive": drive,
}

FOLDERS_STAY = {"dropbox"}
"""Backends on which a name that was once a folder of names stays Denied."""

WITHOUT_NAMES = {"drive"}
"""Backends on which names are not unique: what was put is found by its Ref alone."""

SERVERS = [name for name in BACKENDS if name not in ("memory", "local")]
"""Backends asked over HTTP: up to a hundred times slower than the others."""
