"""Where an upload was begun, kept beside the file so that a later process goes on; knows no network."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from storage.uploadnote import UploadNote

_LIMIT = 20_000
_GOOGLES = re.compile(r"https://([a-z0-9-]+\.)+googleapis\.com/[!-~]*")
"""One expression over the whole address: two parsers may disagree on whose it is."""


@dataclass
class Progress:
    """The id a file is to have and the upload session it goes through. It belongs to one file and one target.

    A note that is old, of another file or damaged is ignored: then the upload begins anew. It is a hint only, for the
    server is asked how far it is, and the finished file is compared with its hash.
    """

    note: UploadNote | None
    target: str
    size: int
    changed: int
    """When the file was last written to, nanoseconds."""
    id: str = ""
    """Empty: none was chosen."""
    session: str = ""
    """The session's address; who has it may write to that session and nothing else. Empty: none was begun."""

    @staticmethod
    def of(source: Path | None, target: str, size: int) -> Progress:
        """What the note beside a file says of just this upload, else a fresh one. Bytes without a file keep no note."""
        if source is None:
            return Progress(None, target, size, 0)
        with suppress(OSError):
            changed = source.stat().st_mtime_ns
            fresh = Progress(UploadNote(source), target, size, changed)
            return fresh._read() or fresh
        return Progress(None, target, size, 0)

    def save(self) -> None:
        """Keep the note."""
        if self.note is not None:
            self.note.keep(self._whose() | {"id": self.id, "session": self.session})

    def forget(self) -> None:
        """The upload is complete, or can never be."""
        self.id, self.session = "", ""
        if self.note is not None:
            self.note.drop()

    def _whose(self) -> dict[str, object]:
        return {"format": 1, "target": self.target, "size": self.size, "changed": self.changed}

    def _read(self) -> Progress | None:
        said = self.note.read(_LIMIT) if self.note else None
        if not isinstance(said, dict) or {key: said.get(key) for key in self._whose()} != self._whose():
            return None
        id_, session = said.get("id"), said.get("session")
        if not isinstance(id_, str) or not isinstance(session, str) or not _googles(session):
            return None
        return Progress(self.note, self.target, self.size, self.changed, id_, session)


def _googles(session: str) -> bool:
    """Whether a session's address is one of Google's, which alone may be shown the token."""
    return not session or bool(_GOOGLES.fullmatch(session))
