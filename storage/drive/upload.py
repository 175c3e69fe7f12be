"""One long file up in parts under an id chosen before, resumed where it was interrupted; knows not what is stored."""

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
from storage.drive.client import Client, document
from storage.drive.errors import NotOurs, UsedUp
from storage.drive.ids import Ids
from storage.retry import patiently
from storage.uploads import Source, UploadNote, sent, unreadable

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


UNIT = 256 << 10
"""Parts are multiples of this, the last one excepted (Drive's documentation of resumable uploads)."""
PART = 16 << 20
"""Bytes of a part. Each costs a round trip during which nothing is sent."""
SMALL = 5 << 20
"""What is no longer goes up in one request (Drive takes no more that way)."""
FIELDS = "id,name,size,modifiedTime,md5Checksum,sha256Checksum,mimeType,trashed,properties"
TYPE = "application/octet-stream"
_SESSIONS = 3
"""How many upload sessions are tried: one may have expired."""
_ATTEMPTS = 5
_OVER = (400, 404, 410, 416)
"""Answers to a part after which only a new session helps."""


class Upload:
    """Note an id, begin a session under it (or go on with the noted one), send what it lacks, compare hashes.

    Kept to one id: however often replies are lost, there is one file. `next_chunk` never retries by itself, for it
    would send an emptied part; after any trouble the server is asked first how far it is.
    """

    def __init__(self, client: Client, ids: Ids, name: str, folder: str, source: Source) -> None:
        self._client = client
        self._ids = ids
        self._name, self._folder = name, folder
        self._source = source
        self._progress = Progress.of(source.path, f"{folder}/{name}", source.size)

    def send(self) -> Ref:
        """Returns once the file is there with the right hash. Raises StoreError; a later call goes on."""
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
        raise Unavailable(
            f"{self._client.address}: {self._name} did not arrive as it was sent, in {_SESSIONS} tries. It is worth "
            "trying again."
        )

    def _arrived(self, noted: bool) -> dict[str, Any] | None:
        """What Drive tells of the file once a session is over; None if it is not there.

        noted: the id is from a note, which may be of another account's upload, or damaged.
        """
        try:
            return self._through_session()
        except Exists:
            return self._found()  # our own, whose last reply was lost
        except UsedUp:
            return None
        except NotOurs:
            if not noted:
                raise
            return None

    def _through_session(self) -> dict[str, Any] | None:
        """What Drive tells of the finished file; None if the session is gone."""
        body = {"id": self._progress.id, "name": self._name, "parents": [self._folder], "mimeType": TYPE}
        media = _media(self._source, PART if self._progress.session else UNIT)
        request = self._client.v3.files().create(body=body, media_body=media, fields=FIELDS, supportsAllDrives=True)
        request.resumable_uri = self._progress.session or None
        request._in_error_state = bool(self._progress.session)  # ask how far it is, before sending anything
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
        return None  # it keeps nothing of what it is sent

    def _part(self, request: Any) -> tuple[dict[str, Any] | None, bool]:
        """Send one part: the finished file if it was the last one, and whether the session is gone."""
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
        """Whether what Drive has is what was to be sent. Raises StoreError if that cannot be read."""
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


def stat(client: Client, name: str, file: str) -> dict[str, Any]:
    """What Drive tells of a file. Raises Missing and other StoreErrors."""
    found: dict[str, Any] = client.ask(
        f"looking at {name}", lambda drive: drive.files().get(fileId=file, fields=FIELDS, supportsAllDrives=True)
    )
    return found


def is_whole(found: dict[str, Any], size: int, sha256: str) -> bool:
    """Whether the server says that it has just these bytes."""
    return str(found.get("size")) == str(size) and found.get("sha256Checksum") == sha256


def _media(source: Source, part: int) -> Any:
    """The source as the SDK reads one, `part` bytes at a time.

    The first part of an upload is short: only its reply names the session, which is noted.
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
