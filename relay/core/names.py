"""All names of objects in a store, and the rule for names that people choose."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, NamedTuple

from pydantic import Field

from relay.core.errors import BadConfig
from storage.contract import IDENTITY as IDENTITY

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
"""The same as the type of a field. Stored objects use it, so a name that is allowed now must stay allowed."""
FRAGMENT = "#id="
"""Separates an address from the identity that its store must have, if the address names one."""
REGISTRY = "registry/"
REGISTRY_LEDGER = REGISTRY + "ledger/"
CHECKPOINTS = "checkpoints/"
MANIFEST = "manifest.json"
CACHES = "caches/"
"""Compiled code of all runs, each under its key. It is advice: nothing names it, and any session may delete it."""
TOKEN = 16
"""Hexadecimal digits of the token in a name whose plain form is taken."""
_FILE = re.compile(
    r"step_(0|[1-9][0-9]{0,15})\.e(0|[1-9][0-9]{0,15})(?:\.([0-9a-f]{16}))?/([a-z0-9][a-z0-9._-]{0,127})"
)
_WITH_TOKEN = re.compile(r"/step_[0-9]+\.e[0-9]+\.[0-9a-f]{16}/[^/]+$")
_SIGN = re.compile(r"(heartbeat|stop)\.(0|[1-9][0-9]{0,15})")


class Place(NamedTuple):
    """The parts of a checkpoint file's name. One (step, epoch) may have several folders, each of one checkpoint."""

    step: int
    epoch: int
    file: str
    token: str = ""
    """Token of the folder; '' for the plain one."""

    @property
    def folder(self) -> str:
        """The folder's name."""
        return folder_name(self.step, self.epoch, self.token)


def folder_name(step: int, epoch: int, token: str = "") -> str:
    """Name of a checkpoint's folder in the store. `token`: if the plain name is taken."""
    return f"step_{step}.e{epoch}{'.' if token else ''}{token}"


def has_token(name: str) -> bool:
    """Whether a checkpoint's file lies in a folder with a token."""
    return _WITH_TOKEN.search(name) is not None


@dataclass(frozen=True)
class Names:
    """The names of one run. Both parts have passed `check_name`."""

    project: str
    run: str

    def __post_init__(self) -> None:
        check_name("project", self.project)
        check_name("run", self.run)

    @property
    def home(self) -> str:
        """Prefix of all objects of the run but checkpoints."""
        return f"runs/{self.project}/{self.run}/"

    @property
    def ledger(self) -> str:
        """Prefix of the log."""
        return self.home + "ledger/"

    @property
    def checkpoints(self) -> str:
        """Prefix of all checkpoints; a run names no file outside it (I3)."""
        return f"{CHECKPOINTS}{self.project}/{self.run}/"

    @property
    def fork(self) -> str:
        """The object that names a fork's source. The session that writes it first may write the copy."""
        return f"{self.checkpoints}fork"

    def heartbeat(self, epoch: int) -> str:
        """The holder's heartbeat; advice."""
        return f"{self.home}heartbeat.{epoch}"

    def stop(self, epoch: int) -> str:
        """A request to the holder of that epoch to end as planned."""
        return f"{self.home}stop.{epoch}"

    @property
    def signs(self) -> tuple[str, str]:
        """Prefixes of all heartbeats and of all stop requests."""
        return self.heartbeat(0)[:-1], self.stop(0)[:-1]

    def parse_sign(self, name: str) -> int | None:
        """The epoch if `name` is exactly that of a heartbeat or a stop request of this run, else None."""
        found = _SIGN.fullmatch(name.removeprefix(self.home)) if name.startswith(self.home) else None
        return int(found[2]) if found else None

    def history(self, epoch: int, token: str = "") -> str:
        """Links that left the state; `epoch` is that of the newest one inside. `token`: if that name is taken."""
        return f"{self.home}history/{epoch:020d}{'.' if token else ''}{token}.json"

    @property
    def data(self) -> str:
        """Where the run's data came from; advice."""
        return self.home + "data.json"

    @property
    def page(self) -> str:
        """The run's page, if somebody published it here; advice."""
        return self.home + "page.html"

    def session(self, epoch: int) -> str:
        """The report of the session of that epoch; advice."""
        return f"{self.home}sessions/{epoch:020d}.json"

    def checkpoint(self, step: int, epoch: int, token: str = "") -> str:
        """Prefix of one checkpoint's files."""
        return f"{self.checkpoints}{folder_name(step, epoch, token)}/"

    def manifest(self, step: int, epoch: int, token: str = "") -> str:
        """The file that lists a checkpoint's other files."""
        return self.checkpoint(step, epoch, token) + MANIFEST

    def is_manifest(self, name: str, step: int, epoch: int) -> bool:
        """Whether a checkpoint's manifest may have this name, in its plain folder or in one with a token."""
        place = self.parse_checkpoint(name)
        return place is not None and place[:3] == (step, epoch, MANIFEST)

    def parse_checkpoint(self, name: str) -> Place | None:
        """The parts of `name` if it is exactly the name of a checkpoint file of this run, else None."""
        found = _FILE.fullmatch(name.removeprefix(self.checkpoints)) if name.startswith(self.checkpoints) else None
        return Place(int(found[1]), int(found[2]), found[4], found[3] or "") if found else None


class BadName(BadConfig):
    """The name is not valid."""

    def __init__(self, kind: str, value: str, given_by: str = "") -> None:
        """`kind`: 'run', 'account', …; `given_by`: the place where it was written, if known."""
        super().__init__(
            f"{value[:80]!r} is not a valid {kind} name: use 1 to 64 of a-z, 0-9, _ and -, first a letter or digit."
        )
        self.kind, self.value, self.given_by = kind, value, given_by

    @property
    def proposal(self) -> str:
        """The most similar valid name."""
        return re.sub(r"[^a-z0-9_-]+", "_", self.value.lower()).strip("_-")[:64] or f"{self.kind}_1"


class NotLetters(BadConfig):
    """A text holds bytes that are not letters in this shell. Without them it would be another name."""

    def __init__(self, what: str, text: str) -> None:
        shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
        super().__init__(
            f"{what} {shown[:80]!r} holds bytes that are not letters in the language setting of this shell."
        )
        self.what, self.text = what, text


def check_name(kind: str, value: str, given_by: str = "") -> str:
    """The name itself; raises BadName (78)."""
    if NAME.fullmatch(value):
        return value
    raise BadName(kind, value, given_by)


def check_letters(what: str, text: str) -> str:
    """The text itself; raises NotLetters (78)."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise NotLetters(what, text)
    return text


def nearest(word: str, options: Iterable[str]) -> str | None:
    """The option most similar to `word`, if any is similar enough."""
    found = get_close_matches(word, list(options), n=1, cutoff=0.6)
    return found[0] if found else None


def one_edit_apart(a: str, b: str) -> bool:
    """Whether one inserted, deleted, changed or swapped neighboring character turns `a` into `b` (or none)."""
    if len(a) > len(b):
        a, b = b, a
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    rest_a, rest_b = a[start:], b[start:]
    if len(a) == len(b):
        return rest_a[1:] == rest_b[1:] or (rest_a[:2] == rest_b[1::-1] and rest_a[2:] == rest_b[2:])
    return len(b) - len(a) == 1 and rest_a == rest_b[1:]
