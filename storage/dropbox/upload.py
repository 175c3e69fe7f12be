"""Uploads one long object in parts, and resumes after an interruption."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard, TypeVar

from storage.contract import Exists, Missing, Unavailable
from storage.digests import Digests
from storage.dropbox.client import DropboxClient
from storage.parallel import in_parallel
from storage.retry import patiently
from storage.uploads import Source, UploadNote, sent, unreadable

_LIMIT = 1 << 20


@dataclass
class DropboxProgress:
    """An upload session and its acknowledged parts. It belongs to one file, as last written, and one target.

    An old, foreign or damaged note is ignored, and the upload starts again. The note is only a hint: the server is
    asked, and the finished object is compared with the file's hash.
    """

    note: UploadNote | None
    target: str
    size: int
    changed: int
    """The file's modification time, nanoseconds."""
    session: str = ""
    """Empty before a session starts."""
    concurrent: bool = False
    done: set[int] = field(default_factory=set)
    """Offsets of acknowledged parts (concurrent), or the one offset before which all bytes are stored."""

    @staticmethod
    def of(source: Path | None, target: str, size: int) -> DropboxProgress:
        """The note next to a file, if it is of this upload; otherwise a new one. Bytes without a file keep no note."""
        if source is None:
            return DropboxProgress(None, target, size, 0)
        fresh = DropboxProgress(UploadNote(source), target, size, _changed(source))
        said = fresh._read()
        if said is not None and said["session"] and {key: said[key] for key in fresh._whose()} == fresh._whose():
            fresh.session, fresh.concurrent, fresh.done = said["session"], said["concurrent"], set(said["done"])
        return fresh

    @property
    def offset(self) -> int:
        """The offset before which all bytes are stored, in a sequential session."""
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
        """Remove the note: the upload is complete, or its session is gone."""
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
    """Whether every field is present and has its type."""
    numbers = {"format": int, "size": int, "changed": int}
    types = {**numbers, "target": str, "session": str, "concurrent": bool, "done": list}
    if not isinstance(said, dict) or set(said) != set(types):
        return False
    return all(type(said[key]) is kind for key, kind in types.items()) and all(
        type(offset) is int and 0 <= offset <= said["size"] for offset in said["done"]
    )


BLOCK = 4 << 20
"""Parts of a concurrent session are of this size (or a multiple of it); the content hash is made of such blocks."""
SMALL = 8 << 20
"""Bytes up to this size go up in one request."""
PART = 8 << 20
"""Size of a part in a sequential session, bytes: each costs a round trip without sending."""
CONCURRENT_FROM = 32 << 20
"""From this size on, parts go up in parallel: one connection leaves a long line idle between parts."""
LANES = 4
_SESSIONS = 3
"""Number of upload sessions to try: one may have expired, or refuse bytes that another accepts."""
_ATTEMPTS = 5

T = TypeVar("T")
Mode = Literal["add", "overwrite"]
"""The treatment of other bytes at the path: refuse, or replace them."""


class SessionLost(Exception):
    """The upload session cannot continue: expired, committed, or in another state than ours."""


class DropboxUpload:
    """Start a session (or continue the noted one), send the missing parts, commit it under the path, compare hashes.

    A part is sent again when no answer comes. In sequence the server reports where to continue
    (`incorrect_offset.correct_offset`). How a concurrent session treats a repeated part is not documented: if it
    refuses, the file goes up again in sequence.
    """

    def __init__(
        self,
        client: DropboxClient,
        path: str,
        source: Source,
        mode: Mode = "overwrite",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._mode: Mode = mode
        self._path = path
        self._source = source
        self._sleep = sleep
        self._lock = threading.Lock()
        self._digests = Digests.of(source.path, BLOCK) if source.path else None
        self._progress = DropboxProgress.of(source.path, path, source.size)

    def send(self) -> None:
        """Returns when the object is stored with the right hash. Raises StoreError; a later call continues.

        In mode "add" raises Exists if there are other bytes at the path.
        """
        concurrent = self._source.size >= CONCURRENT_FROM
        for _ in range(_SESSIONS):
            try:
                self._send(concurrent)
                return
            except SessionLost:
                self._progress.forget()
                if self._is_there():
                    return
                concurrent = False
        raise Unavailable(f"{self._path}: {_SESSIONS} upload sessions were lost. Try again.")

    def _send(self, concurrent: bool) -> None:
        progress = self._progress
        if not progress.session:
            progress.begin(self._ask(lambda sdk: _start(sdk, concurrent)), concurrent)
        if progress.concurrent:
            self._side_by_side()
        else:
            self._in_sequence()
        try:
            stored = self._ask(lambda sdk: _finish(sdk, progress.session, self._source.size, self._path, self._mode))
        except Exists:
            progress.forget()
            raise
        progress.forget()
        if stored != self._hash():
            raise Unavailable(f"{self._path} was damaged on the way. Try again.")

    def _in_sequence(self) -> None:
        """One part after another, from the server's offset."""
        size, progress = self._source.size, self._progress
        patience = 2 * (size // PART + 1)
        while progress.offset < size:
            offset = progress.offset
            expected = self._append(offset, close=False)
            patience -= 1
            if not 0 <= expected <= size or patience < 0:
                raise SessionLost
            progress.done = {expected}
            progress.save()
            sent(max(0, expected - offset))

    def _side_by_side(self) -> None:
        """All parts but the last in any order, then the last, which closes the session."""
        offsets = range(0, self._source.size, BLOCK)
        in_parallel(self._part, [o for o in offsets[:-1] if o not in self._progress.done], LANES)
        if offsets[-1] not in self._progress.done:
            self._part(offsets[-1], close=True)

    def _part(self, offset: int, close: bool = False) -> None:
        if self._append(offset, close) != min(offset + BLOCK, self._source.size):
            raise SessionLost
        with self._lock:
            self._progress.done.add(offset)
            self._progress.save()
        sent(min(BLOCK, self._source.size - offset))

    def _append(self, offset: int, close: bool) -> int:
        """Send the part at an offset; returns the server's next offset."""
        part = BLOCK if self._progress.concurrent else PART
        data, session = self._source.read(offset, min(part, self._source.size - offset)), self._progress.session
        return self._ask(lambda sdk: _append(sdk, session, offset, data, close))

    def _is_there(self) -> bool:
        """Whether the commit happened and only its reply was lost."""
        try:
            return bool(self._ask(lambda sdk: sdk.files_get_metadata(self._path).content_hash) == self._hash())
        except Missing:
            return False

    def _hash(self) -> str:
        """The content hash, computed while the parts were sent. Raises StoreError."""
        if self._digests is None:
            return self._source.block_hash(BLOCK)
        try:
            return self._digests.over_blocks().sha256
        except OSError as error:
            raise unreadable(self._digests.path, error) from error

    def _ask(self, call: Callable[[Any], T]) -> T:
        return patiently(
            lambda: self._client.ask(f"uploading {self._path}", call),
            sleep=self._sleep,
            jitter=random.random,
            attempts=_ATTEMPTS,
        )


def _start(sdk: Any, concurrent: bool) -> str:
    from dropbox.files import UploadSessionType

    kind = UploadSessionType.concurrent if concurrent else UploadSessionType.sequential
    return str(sdk.files_upload_session_start(b"", session_type=kind).session_id)


def _append(sdk: Any, session: str, offset: int, data: bytes, close: bool) -> int:
    """The server's next offset. Raises SessionLost, or the SDK's errors."""
    from dropbox.exceptions import ApiError
    from dropbox.files import UploadSessionAppendError, UploadSessionCursor

    try:
        sdk.files_upload_session_append_v2(data, UploadSessionCursor(session, offset), close=close)
    except ApiError as error:
        union = error.error
        if not isinstance(union, UploadSessionAppendError) or union.is_content_hash_mismatch():
            raise
        if union.is_incorrect_offset():
            return int(union.get_incorrect_offset().correct_offset)
        if not (union.is_closed() and close):
            raise SessionLost from error
    return offset + len(data)  # also if closed: by this part, whose reply was lost


def write_mode(mode: Mode) -> Any:
    """The mode in the SDK's form."""
    from dropbox.files import WriteMode

    return WriteMode.add if mode == "add" else WriteMode.overwrite


def _finish(sdk: Any, session: str, size: int, path: str, mode: Mode) -> str:
    """The content hash of the committed file. Raises SessionLost, or the SDK's errors."""
    from dropbox.exceptions import ApiError
    from dropbox.files import CommitInfo, UploadSessionCursor, UploadSessionFinishError

    commit = CommitInfo(path, mode=write_mode(mode), autorename=False, mute=True)
    try:
        stored = sdk.files_upload_session_finish(b"", UploadSessionCursor(session, size), commit)
    except ApiError as error:
        union = error.error
        lost = isinstance(union, UploadSessionFinishError) and (
            union.is_lookup_failed()
            or union.is_concurrent_session_not_closed()
            or union.is_concurrent_session_missing_data()
        )
        if lost:
            raise SessionLost from error
        raise
    return str(stored.content_hash)
