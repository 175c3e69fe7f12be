"""What the relay needs of any tracker, and how a tracker says no; knows none of them."""

from __future__ import annotations

import json
import re
from asyncio import CancelledError
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Protocol

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from relay.app.redact import redact
from relay.app.trackers.line import Line, Point
from relay.core.ledger.fields import Id, Strict
from relay.core.wholefile import write_whole
from relay.core.workload import Step
from storage.packages import install

NOTHING = -1
"""The slot up to which an empty tracker was fed."""
MAX_BYTES = 10_000
_HIDDEN = re.compile(r"(?i).*(dir|path|file|folder|url|token|key|secret|password).*")


FOREIGN = (Exception, SystemExit, KeyboardInterrupt, CancelledError)
"""What a tracker's library may raise in a thread of ours: some leave by an exit where they fail."""


class SinkOff(Exception):
    """This tracker cannot be had here; `str(e)` is one line that says why and what to do."""


def installed(package: str) -> bool:
    """Whether Python has it. A folder of that name, as trackers leave where they write, is no package."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def require(package: str) -> None:
    """Raises SinkOff where it is not installed."""
    if not installed(package):
        raise SinkOff(f"it is not installed: `{install(package)}`.")


def in_a_line(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """What a library raised, for people; masked before it is cut, so that no half of a secret is left."""
    return redact(" ".join(f"{type(error).__name__}: {error}".split()), secrets)[:200]


class Sink(Protocol):
    """A tracker. Anything it raises is told once and stops nothing; it is used by one thread."""

    def begin(self, line: Line) -> int:
        """Open the tracker's run for this line: the ledger's slot up to which it was fed, NOTHING for an empty one.

        Points of later slots follow; whatever it holds of them already (a kill, a half-sent message) must not show.
        Raises SinkOff.
        """
        ...

    def write(self, points: Sequence[Point], slot: int) -> None:
        """The next points in order; the tracker has now been fed up to `slot`."""
        ...

    def close(self) -> None:
        """Everything has been written; may take as long as the tracker's upload."""
        ...

    def where(self) -> str:
        """Where people can look, in a few words."""
        ...


class Mark(Strict):
    """How far one line has been fed, kept where a tracker cannot be asked."""

    format: int = Field(default=1, ge=1, le=1)
    run_id: Id
    rewinds: Annotated[int, Field(ge=0)]
    slot: Annotated[int, Field(ge=-1, lt=2**53)]
    step: Step
    """Of the newest point."""


def read_mark(path: Path) -> Mark | None:
    """None without one, or with one that nobody can read."""
    try:
        data = path.read_bytes()
        return Mark.model_validate_json(data) if len(data) <= MAX_BYTES else None
    except (OSError, ValidationError):
        return None


def write_mark(path: Path, mark: Mark) -> None:
    """Whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f"{json.dumps(mark.model_dump(mode='json'))}\n".encode())


def keep_mark(path: Path, mark: Mark) -> None:
    """As `write_mark`, where a mark that cannot be written only costs time."""
    with suppress(OSError):
        write_mark(path, mark)


def public(config: object, name: str = "") -> object:
    """A configuration as a stranger may read it: numbers, switches and plain words; no path, no address, no key."""
    if isinstance(config, dict):
        return {str(key): public(value, str(key)) for key, value in config.items()}
    if isinstance(config, str) and (_HIDDEN.fullmatch(name) or not re.fullmatch(r"[\w:.+-]{0,80}", config)):
        return "(not told)"
    return config if config is None or isinstance(config, bool | int | float | str) else "(not told)"


class Alone:
    """One lock file at a time, held until the process ends at the latest."""

    def __init__(self) -> None:
        self._lock: FileLock | None = None

    def take(self, path: Path) -> None:
        """Let go of what was held, and hold this; where a disk knows no locks, without. Raises SinkOff where another
        process holds it."""
        self.leave()
        lock = FileLock(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise SinkOff("another process of this machine feeds it just now, and brings all there is.") from None
        except (OSError, NotImplementedError):
            return
        self._lock = lock

    def leave(self) -> None:
        """Others may."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None
