"""The backends the contract suite runs against: a factory each of two clients of one new store."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from storage.base import Store
from storage.local import LocalStore
from storage.memory import MemoryStore
from tests.storage.dropbox.handle import running

Clients = tuple[Store, Store]

_number = count()


def memory(_: Path) -> Clients:
    name = f"contract-{next(_number)}"
    return MemoryStore(name), MemoryStore(name)


def local(folder: Path) -> Clients:
    return LocalStore(folder / "store"), LocalStore(folder / "store")


def dropbox(_: Path) -> Clients:
    person = running().account()
    return person.store(), person.store()


BACKENDS: dict[str, Callable[[Path], Clients]] = {
    "memory": memory,
    "local": local,
    "dropbox": dropbox,
}

FOLDERS_STAY = {"dropbox"}
"""Backends on which a name that was once a folder of names stays Denied."""
