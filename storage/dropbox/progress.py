"""How far an upload has come, kept beside the file so that a later process goes on; knows no network."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from storage.uploadnote import UploadNote

_LIMIT = 1 << 20


@dataclass
class Progress:
    """An upload session and what of it has been acknowledged. It belongs to one file, as last written, and one target.

    A note that is old, of another file or damaged is ignored: then the upload begins anew. It is a hint only, for the
    server is asked, and the finished object is compared with the file's hash.
    """

    note: UploadNote | None
    target: str
    size: int
    changed: int
    """When the file was last written to, nanoseconds."""
    session: str = ""
    """Empty: none was begun."""
    concurrent: bool = False
    done: set[int] = field(default_factory=set)
    """Offsets of acknowledged parts (concurrent), or the one offset up to which everything is there."""

    @staticmethod
    def of(source: Path | None, target: str, size: int) -> Progress:
        """What the note beside a file says of just this upload, else a fresh one. Bytes without a file keep no note."""
        if source is None:
            return Progress(None, target, size, 0)
        fresh = Progress(UploadNote(source), target, size, _changed(source))
        said = fresh._read()
        if said is not None and said["session"] and {key: said[key] for key in fresh._whose()} == fresh._whose():
            fresh.session, fresh.concurrent, fresh.done = said["session"], said["concurrent"], set(said["done"])
        return fresh

    @property
    def offset(self) -> int:
        """Up to where everything is there, of a session in sequence."""
        return max(self.done, default=0)

    def begin(self, session: str, concurrent: bool) -> None:
        """A new session."""
        self.session, self.concurrent, self.done = session, concurrent, set()
        self.save()

    def save(self) -> None:
        """Keep the note."""
        if self.note is not None:
            now = {"session": self.session, "concurrent": self.concurrent, "done": sorted(self.done)}
            self.note.keep(self._whose() | now)

    def forget(self) -> None:
        """The upload is complete, or its session is gone."""
        self.session, self.done = "", set()
        if self.note is not None:
            self.note.drop()

    def _whose(self) -> dict[str, object]:
        return {"format": 2, "target": self.target, "size": self.size, "changed": self.changed}

    def _read(self) -> dict[str, Any] | None:
        said = self.note.read(_LIMIT) if self.note else None
        return said if _makes_sense(said) else None


def _changed(source: Path) -> int:
    with suppress(OSError):
        return source.stat().st_mtime_ns
    return 0


def _makes_sense(said: object) -> TypeGuard[dict[str, Any]]:
    """Whether every field is there and of its type."""
    numbers = {"format": int, "size": int, "changed": int}
    types = {**numbers, "target": str, "session": str, "concurrent": bool, "done": list}
    if not isinstance(said, dict) or set(said) != set(types):
        return False
    return all(type(said[key]) is kind for key, kind in types.items()) and all(
        type(offset) is int and 0 <= offset <= said["size"] for offset in said["done"]
    )
