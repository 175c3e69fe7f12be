"""A new store on each remote service, and what is done to that service behind the store's back, in one vocabulary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any, ClassVar, Literal, Protocol

from storage.base import Store, open_store
from storage.drive.members import go_on_by_newest
from tests.storage.drive.handle import running as drive_running
from tests.storage.drive.stores import Drive, holding
from tests.storage.dropbox.handle import running as dropbox_running
from tests.storage.fakes.redirect import DRIVE, DROPBOX, HF
from tests.storage.hf.handle import running as hf_running
from tests.storage.s3.proxy import Fault as Lost
from tests.storage.s3.proxy import Request, proxy_to
from tests.storage.s3.servers import ENVIRONMENT, server

Fault = Literal[
    "429", "500-before", "500-after", "drop-before", "drop-after", "hang-after", "html", "flip", "cut", "conflict"
]
"""429: asked to wait for WAIT_S seconds. 500, drop: an error of the server, or a broken connection, without (before) or
with (after) the effect. hang: the effect, and no answer for a while. html: a login page. flip: one bit changes on the
way. cut: a download breaks off half way. conflict: refused for a write of another that never was."""
On = Literal["write", "read", ""]
"""Which requests: those that create an object, those that read one, all."""
WAIT_S = 7.0
"""What every service asks for here."""
_number = count()


class Service(Protocol):
    """One new store. `environs` are what its members' processes need to open `address`, one each."""

    kind: str
    address: str
    environs: list[dict[str, str]]
    repeats: bool
    """Whether the SDK sends again by itself where a connection breaks."""

    def store(self, *, read_only: bool = False) -> Store:
        """A new client."""
        ...

    def fault(self, kind: Fault, on: On = "", *, times: int = 1, chance: float = 1.0) -> None:
        """Plan what happens to the next requests; -1 times: from now on."""
        ...

    def heal(self) -> None:
        """Nothing more is planned."""
        ...

    def met(self) -> int:
        """Requests that a fault happened to."""
        ...

    def sent(self) -> int:
        """Requests so far that were to create an object."""
        ...


class OnDropbox:
    """A folder that two accounts share, each under a name of its own."""

    kind, repeats = "dropbox", False
    routes: ClassVar[dict[On, str]] = {"write": "files/upload", "read": "files/download", "": "files/"}

    def __init__(self) -> None:
        fake = dropbox_running()
        self.people = [fake.account(), fake.account()]
        shared = f"7{next(_number)}{os.getpid()}"
        names = ("/ours", "/from a friend")
        fake.control("share", id=shared, accounts={p.name: at for p, at in zip(self.people, names, strict=True)})
        self.address = f"dropbox://ns:{shared}/relay"
        self.environs = [{DROPBOX: str(fake.port), **person.environ} for person in self.people]

    def store(self, *, read_only: bool = False) -> Store:
        return self.people[0].store(self.address, read_only=read_only)

    def fault(self, kind: Fault, on: On = "", *, times: int = 1, chance: float = 1.0) -> None:
        for person in self.people:
            more = {"retry_after": WAIT_S, "seconds": 1.0 if kind == "hang-after" else 0}
            person.fault(kind, route=self.routes[on], times=times, chance=chance, **more)

    def heal(self) -> None:
        for person in self.people:
            person.heal()

    def met(self) -> int:
        return sum(len(person.look()["met"]) for person in self.people)

    def sent(self) -> int:
        return sum(person.asked("files/upload") for person in self.people)


class OnDrive:
    """A folder of one account, whose log goes by one of its two ways."""

    repeats = True
    routes: ClassVar[dict[On, list[str]]] = {
        "write": ["v3.files.create", "v2.files.update"],
        "read": ["v3.files.get/media"],
        "": ["v3.files"],
    }

    def __init__(self, way: Literal["chain", "newest"] = "chain") -> None:
        self.kind = "drive" if way == "chain" else f"drive-{way}"
        self.person = drive_running().person()
        self.drive = Drive(self.person)
        self.address = self.drive.address
        self.environs = [{DRIVE: str(drive_running().port), **holding(self.person)}]
        if way == "newest":
            go_on_by_newest(self.drive.store())

    def store(self, *, read_only: bool = False) -> Store:
        return self.drive.store(read_only=read_only)

    def fault(self, kind: Fault, on: On = "", *, times: int = 1, chance: float = 1.0) -> None:
        more = {"retry_after": WAIT_S, "status": 503 if kind.startswith("500") else 0}
        for route in self.routes[on]:
            self.person.fault(kind, route=route, times=times, chance=chance, **more)

    def heal(self) -> None:
        self.person.heal()

    def met(self) -> int:
        return len(self.person.look()["met"])

    def sent(self) -> int:
        return self.person.asked("v3.files.create")


class OnS3:
    """A prefix in the bucket of a real server, reached through a proxy."""

    repeats = False
    faults: ClassVar[dict[Fault, Lost]] = {
        "429": "slow down",
        "500-after": "error after",
        "drop-before": "before",
        "drop-after": "after",
        "hang-after": "stall after",
        "cut": "cut",
        "conflict": "conflict",
    }

    def __init__(self, name: str, proxy: Any) -> None:
        prefix = f"remote-{next(_number)}"
        self.kind, self.proxy = f"s3-{name}", proxy
        self.address = server(name).address(prefix, proxy.endpoint_url)
        self.direct = server(name).address(prefix)
        self.environs = [ENVIRONMENT]

    def store(self, *, read_only: bool = False) -> Store:
        return open_store(self.address, read_only=read_only)

    def fault(self, kind: Fault, on: On = "", *, times: int = 1, chance: float = 1.0) -> None:
        random = Random(f"{kind} {on}")
        when = {"write": _creates, "read": _reads, "": lambda _: True}[on]
        self.proxy.fail(
            self.faults[kind],
            lambda request: when(request) and (chance == 1 or random.random() < chance),
            times=None if times < 0 else times,
        )

    def heal(self) -> None:
        self.proxy.heal()

    def met(self) -> int:
        return len(self.proxy.failed)

    def sent(self) -> int:
        return len([request for request in self.proxy.seen if request.conditional])


class OnHF(OnS3):
    """A private bucket of the fake Hugging Face, reached through a proxy."""

    def __init__(self, proxy: Any) -> None:
        fake = hf_running()
        self.kind, self.proxy = "hf", proxy
        self.address = f"{fake.bucket()}/relay"
        self.environs = [{**ENVIRONMENT, **fake.key(), HF: str(proxy.port)}]


def _creates(request: Request) -> bool:
    return request.method == "PUT"


def _reads(request: Request) -> bool:
    return request.method == "GET" and "list-type" not in request.path and not request.path.startswith("/api/")


@contextmanager
def _s3(name: str) -> Iterator[OnS3]:
    with proxy_to(server(name).endpoint_url) as proxy:
        yield OnS3(name, proxy)


@contextmanager
def _hf() -> Iterator[OnHF]:
    fake = hf_running()
    with proxy_to(f"http://127.0.0.1:{fake.port}") as proxy:
        os.environ[HF] = str(proxy.port)
        try:
            yield OnHF(proxy)
        finally:
            os.environ[HF] = str(fake.port)


@contextmanager
def _plain(make: Callable[[], Service]) -> Iterator[Service]:
    yield make()


SERVICES: dict[str, Callable[[], Any]] = {
    "s3-ministack": lambda: _s3("ministack"),
    "s3-seaweedfs": lambda: _s3("seaweedfs"),
    "hf": _hf,
    "dropbox": lambda: _plain(OnDropbox),
    "drive": lambda: _plain(OnDrive),
    "drive-newest": lambda: _plain(lambda: OnDrive("newest")),
}
"""Context managers; a service joins with one line."""
USUAL = ("s3-ministack", "hf", "dropbox", "drive")
"""One of each kind."""
