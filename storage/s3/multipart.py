"""Uploads a file in parts and survives a kill, because the server keeps its parts."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from storage.contract import Exists, Missing, StoreError, Unavailable
from storage.digests import Digests
from storage.parallel import in_parallel
from storage.s3.checksums import b64, b64_sha256, sha_hex
from storage.s3.client import Clients
from storage.s3.errors import Failure, code_of, s3_errors, status_of, translate
from storage.uploads import sent

PART = 8 << 20
"""Size of a part, bytes, unless the file would need too many."""
SENDERS = 8
"""Threads that send the parts of a file, and parts in memory, for all files of a store."""
_MOST_PARTS = 10_000
_STALE = {
    *("NoSuchUpload", "InvalidPart", "InvalidPartOrder", "EntityTooSmall", "InvalidRequest"),
    "ConditionalRequestConflict",
}
"""The upload has changed: finished or discarded elsewhere, begun in another way, or blocked by another upload."""


def part_size(size: int) -> int:
    """Size of each part but the last, bytes: a function of the file's size alone, so that any client finds the same."""
    mega = 1 << 20
    return max(PART, -(-size // (_MOST_PARTS * mega)) * mega)


class Unfinished(NamedTuple):
    """An upload of which a server holds parts."""

    key: str
    id: str
    begun: datetime


@dataclass(frozen=True)
class Part:
    """A part on the server."""

    number: int
    etag: str
    sha256: str | None
    """In S3's notation."""

    def is_of(self, data: bytes, sha256: str | None) -> bool:
        """Whether the part has these bytes, by the server's best hash; `sha256` is theirs if known."""
        if self.sha256:
            return self.sha256 == (sha256 or b64_sha256(data))
        return self.etag.strip('"') == hashlib.md5(data, usedforsecurity=False).hexdigest()

    def document(self, verified: bool) -> dict[str, Any]:
        """The form in which completing the upload names it."""
        checksum = {"ChecksumSHA256": self.sha256} if verified else {}
        return {"PartNumber": self.number, "ETag": self.etag, **checksum}


class Multipart:
    """Uploads of one bucket. The server is asked for the parts that a killed upload has sent; no state is kept here."""

    def __init__(self, clients: Clients, bucket: str, address: str) -> None:
        self._clients = clients
        self._bucket = bucket
        self._address = address
        self._in_memory = threading.BoundedSemaphore(SENDERS)

    def put(self, key: str, path: Path, *, verified: bool, new: bool = False) -> None:
        """Store a file, continuing the newest unfinished upload of the key; its other uploads are discarded.

        With `verified`, each part and the whole carry a SHA-256 for the server to check. With `new`, an existing object
        is not replaced: raises Exists. Raises StoreError; sent parts stay for the next attempt. OSError if the file
        cannot be read.
        """
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            upload, kept = self._begin(key, verified)
            step = part_size(size)
            digests = Digests.of(path, step) if verified else None

            def send(number: int) -> Part:
                with self._in_memory:
                    data = os.pread(file.fileno(), step, (number - 1) * step)
                    sha256 = b64(digests.of_block(number - 1)) if digests else None
                    part = self._send(upload, number, data, kept.get(number), sha256)
                    sent(len(data))
                    return part

            parts = in_parallel(send, range(1, -(-size // step) + 1), SENDERS)
        self._finish(upload, parts, verified, new)

    def unfinished(self, prefix: str) -> Iterator[Unfinished]:
        """Uploads whose key starts with the prefix, unordered. Raises StoreError."""
        with s3_errors(self._address, "the list of unfinished uploads"):
            pages = self._clients.patient.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for found in page.get("Uploads", []):
                    if found["Key"].startswith(prefix):
                        yield Unfinished(found["Key"], found["UploadId"], found["Initiated"])

    def abort(self, upload: Unfinished) -> None:
        """Discard the parts on the server; succeeds if they are gone already. Raises StoreError."""
        try:
            self._clients.patient.abort_multipart_upload(Bucket=self._bucket, Key=upload.key, UploadId=upload.id)
        except Failure as error:
            if code_of(error) != "NoSuchUpload":
                raise translate(error, self._address, f"giving up the upload of {upload.key}") from error

    def _begin(self, key: str, verified: bool) -> tuple[Unfinished, dict[int, Part]]:
        """The upload to send to, and the parts that it has."""
        mine = sorted((u for u in self.unfinished(key) if u.key == key), key=lambda u: u.begun)
        kept = self._parts(mine[-1], verified) if mine else None
        for other in mine if kept is None else mine[:-1]:
            self.abort(other)
        if kept is not None:
            return mine[-1], kept
        asked = {"ChecksumAlgorithm": "SHA256"} if verified else {}
        with s3_errors(self._address, key):
            begun = self._clients.once.create_multipart_upload(Bucket=self._bucket, Key=key, **asked)
        return Unfinished(key, begun["UploadId"], datetime.min), {}

    def _parts(self, upload: Unfinished, verified: bool) -> dict[int, Part] | None:
        """The server's parts of an upload; None if it cannot continue."""
        kept: dict[int, Part] = {}
        try:
            pages = self._clients.patient.get_paginator("list_parts")
            for page in pages.paginate(Bucket=self._bucket, Key=upload.key, UploadId=upload.id):
                if verified and page.get("ChecksumAlgorithm") not in (None, "SHA256"):
                    return None
                for found in page.get("Parts", []):
                    kept[found["PartNumber"]] = Part(found["PartNumber"], found["ETag"], found.get("ChecksumSHA256"))
        except Failure as error:
            if code_of(error) in _STALE:
                return None
            raise translate(error, self._address, f"the parts of {upload.key}") from error
        return kept

    def _send(self, upload: Unfinished, number: int, data: bytes, kept: Part | None, sha256: str | None) -> Part:
        """A part, sent unless the server has these bytes; with its SHA-256 if the server is to check it."""
        if kept and kept.is_of(data, sha256):
            return Part(number, kept.etag, sha256)
        checks = {"ChecksumSHA256": sha256} if sha256 else {}
        place = {"Bucket": self._bucket, "Key": upload.key, "UploadId": upload.id, "PartNumber": number}
        client = self._clients.checked if sha256 else self._clients.patient
        try:
            answer = client.upload_part(**place, Body=data, **checks)
        except Failure as error:
            raise self._meant(error, upload) from error
        return Part(number, answer["ETag"], sha256)

    def _finish(self, upload: Unfinished, parts: list[Part], verified: bool, new: bool) -> None:
        """Make the parts one object. A lost answer or a missing upload may mean that this has happened already."""
        documents = {"Parts": [part.document(verified) for part in parts]}
        place = {"Bucket": self._bucket, "Key": upload.key, "UploadId": upload.id}
        condition = {"IfNoneMatch": "*"} if new else {}
        try:
            self._clients.once.complete_multipart_upload(**place, MultipartUpload=documents, **condition)
        except Failure as error:
            if new and status_of(error) == 412:
                with suppress(StoreError):
                    self.abort(upload)
                raise Exists(f"{self._address}: {upload.key} exists already.") from error
            if new and status_of(error) == 501:  # the server lacks the condition: `storage.transfer` checked
                self._finish(upload, parts, verified, new=False)
                return
            uncertain = code_of(error) == "NoSuchUpload" or isinstance(translate(error, "", ""), Unavailable)
            if not (uncertain and self._landed(upload.key, parts)):
                raise self._meant(error, upload) from error

    def _landed(self, key: str, parts: list[Part]) -> bool:
        """Whether the object consists of these parts, by the tag that servers give such an object."""
        digests = [part.etag.strip('"') for part in parts]
        try:
            whole = hashlib.md5(b"".join(map(bytes.fromhex, digests)), usedforsecurity=False).hexdigest()
            with s3_errors(self._address, key):
                found = self._clients.patient.head_object(Bucket=self._bucket, Key=key)
        except (ValueError, Missing):
            return False
        return bool(found["ETag"].strip('"') == f"{whole}-{len(parts)}")

    def _meant(self, error: Exception, upload: Unfinished) -> StoreError:
        """The StoreError for a failure. An upload that cannot become the file is discarded before the next attempt."""
        code = code_of(error)
        if code not in _STALE:
            return translate(error, self._address, upload.key)
        with suppress(StoreError):
            self.abort(upload)
        return Unavailable(f"{self._address}: the upload of {upload.key} cannot continue ({code}). Try again.")


def composite(checksum: str, size: int) -> str | None:
    """The hex digest over the digests of a file's parts, from the server's value; None if its parts are not ours."""
    whole, _, count = checksum.partition("-")
    ours = -(-size // part_size(size))
    return sha_hex(whole) if count == str(ours) else None
