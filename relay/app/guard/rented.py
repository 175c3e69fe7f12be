"""The rented machine that this process runs on: its id, and the calls that delete and describe it."""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict

from relay.core.errors import BadConfig
from relay.core.runs.opening import folder_of, of_one_machine
from relay.people.policy import STALE_DAYS
from storage.mounts import mount_of

TIMEOUT_S = 20.0
"""For connecting, and for each part of an answer."""
MOST_BYTES = 1_000_000
"""Size limit of an answer."""
LONGEST_WAIT_S = 300.0
"""Longest wait that a provider may ask for."""
ADDRESS = "RELAY_GUARD_ADDRESS"
"""Replaces the providers' addresses in tests. Keys are sent to it, so it must be an address of this machine."""

State = Literal["accepted", "missing", "refused", "forbidden", "failed", "there", "gone", "another"]
"""Of a deletion: accepted, missing (no such machine). Of a description: there, gone, another (of another machine). Of
both: refused (the key is wrong), forbidden (this key may not do that), failed (any other answer, or none)."""


class NoMachine(BadConfig):
    """The guard does not know how to delete this machine."""

    def __init__(self, why: str) -> None:
        super().__init__(f"This machine cannot delete itself: {why}.")


class WrongMachine(BadConfig):
    """The id that was given is not this machine's. `given`, `own`: both ids."""

    def __init__(self, given: str, own: str) -> None:
        super().__init__(f"The machine {given} is not this one, which is {own}.")
        self.given, self.own = given, own


class NotReachable(BadConfig):
    """The provider refused to describe this machine before the start. `state`: its answer."""

    def __init__(self, title: str, machine: str, seen: Answer) -> None:
        super().__init__(f"The deletion of {machine} could not be confirmed later. {title}: {seen.text}.")
        self.state = seen.state


class StoreOnMachine(BadConfig):
    """The run would be deleted with the machine."""

    def __init__(self, address: str) -> None:
        super().__init__(f"The store {address} is on this machine, and is deleted with it.")
        self.address = address


class Record(BaseModel):
    """One provider's way to delete a machine, as it was read on a date."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    id: str
    """The variable that holds the machine's id."""
    set_by: Literal["provider", "person"]
    form: str
    """Regular expression of an id."""
    key: str
    """The variable that holds the key."""
    address: str
    within: str = ""
    """The field of the answer that holds the description; empty if the answer is the description."""
    status: str
    gone: tuple[str, ...]
    """Values of `status` that mean deleted."""
    ip: str = ""
    """The field that holds the machine's public address."""
    console: str
    """The page on which a person can delete the machine."""
    source: str
    url: str
    as_of: str
    evidence: Literal["page"]
    notes: str = ""


class Records(BaseModel):
    """All providers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machines: tuple[Record, ...]


@cache
def records() -> tuple[Record, ...]:
    """This version's providers (relay/app/data/rented.yaml)."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # dates stay texts
    text = (files("relay.app") / "data" / "rented.yaml").read_text(encoding="utf-8")
    return Records.model_validate(loader(text).get_single_data()).machines


@dataclass(frozen=True)
class Answer:
    """What a provider said, without any text of its own: that could hold a key."""

    state: State
    text: str
    wait_s: float = 0.0
    """The provider asks to wait that long."""


class Machine(Protocol):
    """A machine that can be deleted."""

    @property
    def title(self) -> str:
        """Of whom to ask."""
        ...

    @property
    def name(self) -> str:
        """Its id."""
        ...

    @property
    def console(self) -> str:
        """Where a person can delete it."""
        ...

    def delete(self) -> Answer:
        """Ask for the deletion; may be repeated."""
        ...

    def look(self) -> Answer:
        """Whether the machine still exists."""
        ...


@dataclass(frozen=True)
class Rented:
    """This machine at one of the providers on record."""

    record: Record
    name: str
    environ: Mapping[str, str]
    root: Path = Path("/")

    @property
    def title(self) -> str:
        """Of the provider."""
        return self.record.title

    @property
    def console(self) -> str:
        """Where a person can delete it."""
        return self.record.console

    def delete(self) -> Answer:
        """Ask for the deletion."""
        status, document, wait_s = self._ask("DELETE")
        if 200 <= status < 300 and document.get("success") is not False:
            return Answer("accepted", f"deletion accepted ({status})")
        return _failed(status, wait_s, "missing")

    def look(self) -> Answer:
        """Whether the machine still exists, from its description."""
        status, document, wait_s = self._ask("GET")
        if status != 200:
            return _failed(status, wait_s, "gone")
        found = document.get(self.record.within) if self.record.within else document
        if self.record.within and self.record.within in document and found is None:
            return Answer("gone", "no such machine")
        if not isinstance(found, dict) or str(found.get("id", "")) != self.name:
            return Answer("another", "the answer describes another machine, or none")
        if str(found.get(self.record.status)) in self.record.gone:
            return Answer("gone", f"its status is {found[self.record.status]}")
        own, public = own_address(), found.get(self.record.ip) if self.record.ip else None
        if own and isinstance(public, str) and public not in ("", own):
            return Answer("another", f"its address is {public[:40]}, and this machine's is {own}")
        return Answer("there", "it still exists")

    def _ask(self, method: str) -> tuple[int, dict[str, Any], float]:
        """(status, the answer's JSON object, seconds to wait); status 0 without an answer. Holds the key meanwhile."""
        parts = urlsplit(self.record.address.format(id=self.name))
        base = urlsplit(self.environ.get(ADDRESS) or f"{parts.scheme}://{parts.netloc}")
        kind = HTTPSConnection if base.scheme == "https" else HTTPConnection
        connection = kind(base.hostname or "", base.port, timeout=TIMEOUT_S)
        try:
            key = variable(self.record.key, self.environ, self.root)
            connection.request(
                method, parts.path, headers={"Authorization": f"Bearer {key}", "Accept": "application/json"}
            )
            response = connection.getresponse()
            wait_s = response.headers.get("Retry-After", "")
            body = response.read(MOST_BYTES)
        except (OSError, HTTPException, ValueError):
            return 0, {}, 0.0
        finally:
            connection.close()
        return response.status, _document(body), min(float(wait_s), LONGEST_WAIT_S) if wait_s.isdecimal() else 0.0


def here(environ: Mapping[str, str], root: Path, given: str | None) -> Rented:
    """This machine, if it belongs to a provider on record. `given`: the id that the person expects.

    Raises NoMachine, WrongMachine (78).
    """
    found = [record for record in records() if variable(record.id, environ, root)]
    if not found:
        names = ", ".join(f"{record.id} ({record.title})" for record in records())
        raise NoMachine(f"it has none of the variables {names}")
    if len(found) > 1:
        raise NoMachine(f"it has the ids of several providers: {', '.join(record.id for record in found)}")
    record = found[0]
    own = own_id(record, environ, root)
    if given is not None and given != own:
        raise WrongMachine(given, own)
    if not re.fullmatch(record.form, own):
        raise NoMachine(f"{record.id} does not hold an id of {record.title}")
    if not variable(record.key, environ, root):
        raise NoMachine(f"{record.key} is not set, the key for {record.title}")
    base = urlsplit(environ.get(ADDRESS) or "http://127.0.0.1")
    if base.scheme != "http" or base.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise NoMachine(f"{ADDRESS} is not an address of this machine")
    return Rented(record, own, environ, root)


def refuse_own_disk(address: str) -> None:
    """Raises StoreOnMachine (78) for memory, and for a folder on a disk of this machine; BadAddress for no store."""
    folder = folder_of(address)
    mount = mount_of(folder) if folder else None
    if of_one_machine(address) and (mount is None or mount.system.verdict == "local"):
        raise StoreOnMachine(address)


def own_id(record: Record, environ: Mapping[str, str], root: Path) -> str:
    """The machine's id. The variables of the first process count, which the provider started: a shell may have read
    another machine's. Raises WrongMachine (78)."""
    typed, own = environ.get(record.id, ""), first_process(root).get(record.id, "")
    if typed and own and typed != own:
        raise WrongMachine(typed, own)
    return own or typed


def checked(machine: Machine) -> str:
    """Ask the provider for this machine before anything starts. Returns a warning, or "".

    Raises NotReachable (78) if the machine could not be deleted later.
    """
    seen = machine.look()
    if seen.state in ("gone", "another", "refused"):
        raise NotReachable(machine.title, machine.name, seen)
    if seen.state == "there":
        return ""
    return f"{machine.title} did not describe this machine ({seen.text}), so its deletion is not certain."


def stale(record: Record, now: float) -> str:
    """A warning if the record is old at `now` (unix seconds), otherwise "".

    A provider may have changed its calls, or ended a version of them.
    """
    days = (datetime.date.fromtimestamp(now) - datetime.date.fromisoformat(record.as_of)).days
    return f"{record.title}'s calls were read {days} days ago: {record.url}." if days > STALE_DAYS else ""


def variable(name: str, environ: Mapping[str, str], root: Path) -> str:
    """A variable of this process, else of the machine's first one: a login by SSH often lacks the provider's."""
    return environ.get(name) or first_process(root).get(name, "")


def first_process(root: Path) -> dict[str, str]:
    """The variables of the machine's first process; none if they cannot be read."""
    try:
        data = (root / "proc/1/environ").read_bytes()
    except OSError:
        return {}
    pairs = (part.decode(errors="replace").partition("=") for part in data.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def own_address() -> str:
    """This machine's public IPv4 address; empty if it has none of its own. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # RFC 5737: chooses the route, and no packet is sent
            found = str(probe.getsockname()[0])
        except OSError:
            return ""
    return found if ipaddress.ip_address(found).is_global else ""


def _failed(status: int, wait_s: float, unknown: State) -> Answer:
    """The answer for a status that is not a success. `unknown`: that for 404."""
    if status in (404, 410):
        return Answer(unknown, f"no such machine ({status})")
    if status in (401, 403):
        return Answer("refused" if status == 401 else "forbidden", f"the key was refused ({status})")
    text = f"it answered {status}" if status else "it did not answer"
    return Answer("failed", text, wait_s)


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
