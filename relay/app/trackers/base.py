"""The interface of every tracker, its errors and its mark file."""

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
"""The slot of an empty tracker."""
MAX_BYTES = 10_000
_HIDDEN = re.compile(r"(?i).*(dir|path|file|folder|url|token|key|secret|password).*")


FOREIGN = (Exception, SystemExit, KeyboardInterrupt, CancelledError)
"""Errors that a tracker's library may raise in our thread; some libraries exit on failure."""


class SinkOff(Exception):
    """This tracker cannot be used here; `str(e)` is one line with the reason and the fix."""


def installed(package: str) -> bool:
    """Return whether the package is installed. A folder of that name, as trackers create for output, does not count."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def require(package: str) -> None:
    """Raises SinkOff if the package is not installed."""
    if not installed(package):
        raise SinkOff(f"it is not installed: `{install(package)}`.")


def in_a_line(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return an error on one line. Secrets are masked before it is cut, so that no half of a secret remains."""
    return redact(" ".join(f"{type(error).__name__}: {error}".split()), secrets)[:200]


class Sink(Protocol):
    """A tracker, used by one thread. Its errors are reported once and stop nothing."""

    def begin(self, line: Line) -> int:
        """Open the tracker's run for this line; returns the ledger slot up to which it was fed, NOTHING if it is empty.

        Points of later slots follow. Points that it already has of them (after a kill or a half-sent message) must not
        show twice. Raises SinkOff.
        """
        ...

    def write(self, points: Sequence[Point], slot: int) -> None:
        """Write the next points in order; afterwards the tracker has everything up to `slot`."""
        ...

    def close(self) -> None:
        """Finish after the last write; may take as long as the tracker's upload."""
        ...

    def where(self) -> str:
        """Return where to view the tracker, in a few words."""
        ...


class Mark(Strict):
    """How far one line was fed, for a tracker that cannot be queried."""

    format: int = Field(default=1, ge=1, le=1)
    run_id: Id
    rewinds: Annotated[int, Field(ge=0)]
    slot: Annotated[int, Field(ge=-1, lt=2**53)]
    step: Step
    """Step of the newest point."""


def read_mark(path: Path) -> Mark | None:
    """Return the mark; None if it is missing or unreadable."""
    try:
        data = path.read_bytes()
        return Mark.model_validate_json(data) if len(data) <= MAX_BYTES else None
    except (OSError, ValidationError):
        return None


def write_mark(path: Path, mark: Mark) -> None:
    """Write the mark atomically. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f"{json.dumps(mark.model_dump(mode='json'))}\n".encode())


def keep_mark(path: Path, mark: Mark) -> None:
    """Like `write_mark`, but ignores failure: a missing mark only costs time."""
    with suppress(OSError):
        write_mark(path, mark)


def public(config: object, name: str = "") -> object:
    """Return a configuration for public view: numbers, booleans and plain words, without paths, addresses and keys."""
    if isinstance(config, dict):
        return {str(key): public(value, str(key)) for key, value in config.items()}
    if isinstance(config, str) and (_HIDDEN.fullmatch(name) or not re.fullmatch(r"[\w:.+-]{0,80}", config)):
        return "(not told)"
    return config if config is None or isinstance(config, bool | int | float | str) else "(not told)"


class Alone:
    """Holds one lock file at a time, at most until the process ends."""

    def __init__(self) -> None:
        self._lock: FileLock | None = None

    def take(self, path: Path) -> None:
        """Release the held lock and take this one; does nothing on a disk without locks. Raises SinkOff if another
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
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None
