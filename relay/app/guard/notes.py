"""Notes that a session leaves in a folder for the guard that started it: that it runs, and its first commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from relay.core.settings.origins import GUARD
from relay.core.wholefile import write_whole

SESSION, COMMIT = "session.json", "commit.json"


@dataclass(frozen=True)
class Note:
    """What `push` needs to send this session's last checkpoint."""

    project: str
    run: str
    account: str
    folder: str
    """The working folder."""


def note_session(environ: Mapping[str, str], note: Note) -> None:
    """A session runs and heeds signals. Does nothing without a guard, nor without a disk that can be written."""
    _leave(environ, SESSION, asdict(note))


def note_commit(environ: Mapping[str, str], step: int, now: float) -> None:
    """A step that was trained is committed. `now`: on the monotonic clock. Only the first one counts."""
    if environ.get(GUARD) and not (Path(environ[GUARD]) / COMMIT).exists():
        _leave(environ, COMMIT, {"step": step, "at": now})


def first_commit(folder: Path) -> float | None:
    """When the first step was committed, on the monotonic clock; None before."""
    try:
        return float(json.loads((folder / COMMIT).read_bytes())["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def has_session(folder: Path) -> bool:
    """Whether a session runs, or ran."""
    return (folder / SESSION).exists()


def last_session(folder: Path) -> Note | None:
    """The newest session."""
    try:
        return Note(**json.loads((folder / SESSION).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _leave(environ: Mapping[str, str], name: str, document: Mapping[str, object]) -> None:
    if environ.get(GUARD):
        with suppress(OSError):
            write_whole(Path(environ[GUARD]) / name, json.dumps(document).encode())
