"""Shared folders on each kind of storage for whole commands: an address, and what a machine needs to reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from tests.storage.dropbox.handle import running
from tests.storage.fakes.process import SITE

_number = count()


@dataclass(frozen=True)
class Shared:
    """One new, empty shared folder."""

    address: str
    environ: dict[str, str]
    """Of every machine that takes part: credentials, and where a fake service is."""
    silent: Callable[[], AbstractContextManager[str | None]]
    """While it is open the storage answers nobody; another address to try it at, if there has to be one."""

    @property
    def asks_for_new(self) -> bool:
        """Whether the address is no place yet but a wish, and `init` tells the place."""
        return self.address.startswith("drive://new")


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
        from tests.storage.s3.servers import ENVIRONMENT, own_port, server

        prefix = f"shared-{next(_number)}"

        @contextmanager
        def silent() -> Iterator[str]:
            yield server(name).address(prefix, f"http://127.0.0.1:{own_port()}")

        return Shared(server(name).address(prefix), ENVIRONMENT, silent)

    return shared


def dropbox(_: Path) -> Shared:
    """A folder of a new account of the fake service."""
    person = running().account()
    return Shared("dropbox:///relay", {**person.environ, "PYTHONPATH": SITE}, lambda: _dropping(person))


def drive(_: Path) -> Shared:
    """A new folder of a new account of the fake service, which `init` makes."""
    from tests.storage.drive.handle import running as running_drive
    from tests.storage.drive.stores import holding

    fake = running_drive()
    person = fake.person()
    return Shared("drive://new", {**fake.environ(), **holding(person)}, lambda: _dropping(person))


class Faulty(Protocol):
    """An account of a fake service."""

    def fault(self, kind: str, **told: Any) -> None: ...

    def heal(self) -> None: ...


@contextmanager
def _dropping(person: Faulty) -> Iterator[None]:
    person.fault("drop-before", route="", times=-1)
    try:
        yield None
    finally:
        person.heal()


SHARED: dict[str, Callable[[Path], Shared]] = {
    "local": local,
    "s3-ministack": s3("ministack"),
    "dropbox": dropbox,
    "drive": drive,
}
"""One line each: whole commands run on these (two stores, the demonstration)."""
