"""Uploads one long file in parts under an id chosen before, and resumes after an interruption."""

from __future__ import annotations

import hashlib
import random
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.contract import Exists, Missing, Ref, Unavailable
from storage.digests import Digests
from storage.drive.client import DriveClient, document
from storage.drive.errors import NotOurs, UsedUp
from storage.drive.ids import Ids
from storage.retry import patiently
from storage.uploads import Source, UploadNote, sent, unreadable

_LIMIT = 20_000
_GOOGLES = re.compile(r"https://([a-z0-9-]+\.)+googleapis\.com/[!-~]*")
"""One expression over the whole address: two parsers may disagree on its host."""


@dataclass
class DriveProgress:
    """The id for a file and the upload session it goes through. It belongs to one file and one target.

    An old, foreign or damaged note is ignored, and the upload starts again. The note is only a hint: the server is
    asked for its position, and the finished file is compared with its hash.
    """

    note: UploadNote | None
    target: str
    size: int
    changed: int
    """The file's modification time, nanoseconds."""
    id: str = ""
    """Empty until an id is chosen."""
    session: str = ""
    """The session's address, a secret that allows writing to that session only. Empty before a session starts."""

    @staticmethod
    def of(source: Path | None, target: str, size: int) -> DriveProgress:
        """The note next to a file, if it is of this upload; otherwise a new one. Bytes without a file keep no note."""
        if source is None:
            return DriveProgress(None, target, size, 0)
        with suppress(OSError):
            changed = source.stat().st_mtime_ns
            fresh = DriveProgress(UploadNote(source), target, size, changed)
            return fresh._read() or fresh
        return DriveProgress(None, target, size, 0)

    def save(self) -> None:
        """Keep the note."""
        if self.note is not None:
            self.note.keep(self._whose() | {"id": self.id, "session": self.session})

    def forget(self) -> None:
        """Remove the note: the upload is complete, or can never be."""
        self.id, self.session = "", ""
        if self.note is not None:
            self.note.drop()

    def _whose(self) -> dict[str, object]:
        return {"format": 1, "target": self.target, "size": self.size, "changed": self.changed}

    def _read(self) -> DriveProgress | None:
        said = self.note.read(_LIMIT) if self.note else None
        if not isinstance(said, dict) or {key: said.get(key) for key in self._whose()} != self._whose():
            return None
        id_, session = said.get("id"), said.get("session")
        if not isinstance(id_, str) or not isinstance(session, str) or not _googles(session):
            return None
        return DriveProgress(self.note, self.target, self.size, self.changed, id_, session)


def _googles(session: str) -> bool:
    """Whether a session's address is Google's; only Google may receive the token."""
    return not session or bool(_GOOGLES.fullmatch(session))


UNIT = 256 << 10
"""Parts are multiples of this, except the last one (Drive's documentation of resumable uploads)."""
PART = 16 << 20
"""Size of a part, bytes. Each part costs a round trip without sending."""
SMALL = 5 << 20
"""Bytes up to this size go up in one request, Drive's limit for that."""
FIELDS = "id,name,size,modifiedTime,md5Checksum,sha256Checksum,mimeType,trashed,properties"
TYPE = "application/octet-stream"
_SESSIONS = 3
"""Number of upload sessions to try: one may have expired."""
_ATTEMPTS = 5
_OVER = (400, 404, 410, 416)
"""Statuses after which only a new session helps."""


class DriveUpload:
    """Note an id, start a session under it (or continue the noted one), send the missing part, compare hashes.

    It keeps to one id, so lost replies never make a second file. `next_chunk` never retries by itself, because it
    would send an emptied part; after any failure the server is asked for its position first.
    """

    def __init__(self, client: DriveClient, ids: Ids, name: str, folder: str, source: Source) -> None:
        self._client = client
        self._ids = ids
        self._name, self._folder = name, folder
        self._source = source
        self._progress = DriveProgress.of(source.path, f"{folder}/{name}", source.size)

    def send(self) -> Ref:
        """Returns when the file is stored with the right hash. Raises StoreError; a later call continues."""
        digests = Digests.of(self._source.path, None) if self._source.path else None
        noted = bool(self._progress.id)
        for _ in range(_SESSIONS):
            if not self._progress.id:
                self._progress.id, self._progress.session = self._ids.one(), ""
                self._progress.save()
            found = self._arrived(noted)
            noted = False
            if found and found.get("id") == self._progress.id and self._is_source(found, digests):
                ref = Ref(self._progress.id)
                self._progress.forget()
                return ref
            self._progress.forget()
        raise Unavailable(f"{self._client.address}: {self._name} arrived damaged in {_SESSIONS} tries. Try again.")

    def _arrived(self, noted: bool) -> dict[str, Any] | None:
        """Drive's metadata of the file after a session; None if the file is missing.

        noted: the id is from a note, which may be of another account's upload, or damaged.
        """
        try:
            return self._through_session()
        except Exists:
            return self._found()  # our own, whose reply was lost
        except UsedUp:
            return None
        except NotOurs:
            if not noted:
                raise
            return None

    def _through_session(self) -> dict[str, Any] | None:
        """Drive's metadata of the finished file; None if the session is gone."""
        body = {"id": self._progress.id, "name": self._name, "parents": [self._folder], "mimeType": TYPE}
        media = _media(self._source, PART if self._progress.session else UNIT)
        request = self._client.v3.files().create(body=body, media_body=media, fields=FIELDS, supportsAllDrives=True)
        request.resumable_uri = self._progress.session or None
        request._in_error_state = bool(self._progress.session)  # ask for the position before sending
        there = 0
        for _ in range(4 + 2 * (self._source.size // UNIT)):
            done, gone = patiently(
                lambda: self._part(request), sleep=time.sleep, jitter=random.random, attempts=_ATTEMPTS
            )
            if done or gone:
                sent(self._source.size - there if done else 0)
                return done
            sent(max(0, request.resumable_progress - there))
            there = max(there, request.resumable_progress)
            media.part = PART
            if request.resumable_uri != self._progress.session:
                self._progress.session = request.resumable_uri
                self._progress.save()
        return None  # the session keeps no bytes

    def _part(self, request: Any) -> tuple[dict[str, Any] | None, bool]:
        """Send one part: the finished file after the last one, and whether the session is gone."""
        from googleapiclient.errors import HttpError

        begun = request.resumable_uri is not None

        def step(wire: Any) -> tuple[dict[str, Any] | None, bool]:
            try:
                done = request.next_chunk(http=wire, num_retries=0)[1]
                return (document(done) if done is not None else None), False
            except HttpError as error:
                request._in_error_state = True
                if begun and int(error.resp.status) in _OVER:
                    return None, True
                raise

        done, gone = self._client.run(f"uploading {self._name}", step)
        return done, gone

    def _is_source(self, found: dict[str, Any], digests: Digests | None) -> bool:
        """Whether Drive's file equals the source. Raises StoreError if it cannot be read."""
        if digests is None:
            return is_whole(found, self._source.size, hashlib.sha256(self._source.data).hexdigest())
        try:
            return is_whole(found, *digests.whole())
        except OSError as error:
            raise unreadable(digests.path, error) from error

    def _found(self) -> dict[str, Any] | None:
        try:
            return stat(self._client, self._name, self._progress.id)
        except Missing:
            return None


def stat(client: DriveClient, name: str, file: str) -> dict[str, Any]:
    """Drive's metadata of a file. Raises Missing and other StoreErrors."""
    found: dict[str, Any] = client.ask(
        f"looking at {name}", lambda drive: drive.files().get(fileId=file, fields=FIELDS, supportsAllDrives=True)
    )
    return found


def is_whole(found: dict[str, Any], size: int, sha256: str) -> bool:
    """Whether the server reports exactly these bytes."""
    return str(found.get("size")) == str(size) and found.get("sha256Checksum") == sha256


def _media(source: Source, part: int) -> Any:
    """The source as the SDK reads it, `part` bytes at a time.

    The first part of an upload is short: only its reply names the session, which is then noted.
    """
    from googleapiclient.http import MediaUpload

    class Media(MediaUpload):  # type: ignore[misc]
        def __init__(self) -> None:
            self.part = part

        def chunksize(self) -> int:
            return self.part

        def mimetype(self) -> str:
            return TYPE

        def size(self) -> int:
            return source.size

        def resumable(self) -> bool:
            return True

        def getbytes(self, begin: int, length: int) -> bytes:
            return source.read(begin, min(length, source.size - begin))

    return Media()
