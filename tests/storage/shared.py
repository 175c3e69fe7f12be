"""Shared folders on each kind of storage for whole commands: an address, and what a machine needs to reach it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from storage.base import Store, open_store
from tests.storage.dropbox.handle import ROOT, Person, running

_number = count()


@dataclass(frozen=True)
class Shared:
    """One new, empty shared folder."""

    address: str
    environ: dict[str, str]
    """Of every machine that takes part: credentials, and where a fake service is."""
    silent: Callable[[], AbstractContextManager[str]]
    """While it is open the storage answers nobody; the address to try it at."""

    @property
    def store(self) -> Store:
        """A client, to look at what is there. The environment has to hold the credentials."""
        return open_store(self.address)


def local(folder: Path) -> Shared:
    """A folder; one that is silent is a share whose disk refuses."""
    place = folder / "store"

    @contextmanager
    def silent() -> Iterator[str]:
        held = place.with_name("unplugged")
        place.rename(held)
        place.write_text("no folder")
        try:
            yield place.as_uri()
        finally:
            place.unlink()
            held.rename(place)

    return Shared(place.as_uri(), {}, silent)


def s3(name: str) -> Callable[[Path], Shared]:
    """A prefix in the bucket of a real server."""

    def shared(_: Path) -> Shared:
        from tests.storage.s3.servers import ENVIRONMENT, free_port, server

        prefix = f"shared-{next(_number)}"

        @contextmanager
        def silent() -> Iterator[str]:
            yield server(name).address(prefix, f"http://127.0.0.1:{free_port()}")

        return Shared(server(name).address(prefix), ENVIRONMENT, silent)

    return shared


def dropbox(_: Path) -> Shared:
    """A folder of a new account of the fake service."""
    person = running().account()
    path = os.pathsep.join([str(ROOT / "tests/storage/dropbox/site"), str(ROOT)])
    return Shared("dropbox:///relay", {**person.environ, "PYTHONPATH": path}, lambda: _dropping(person))


@contextmanager
def _dropping(person: Person) -> Iterator[str]:
    person.fault("drop-before", route="", times=-1)
    try:
        yield "dropbox:///relay"
    finally:
        person.heal()


SHARED: dict[str, Callable[[Path], Shared]] = {
    "local": local,
    "s3-ministack": s3("ministack"),
    "dropbox": dropbox,
}
"""One line each: whole commands run on these (two stores, the demonstration)."""
