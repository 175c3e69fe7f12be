"""Tests with wrong ones whether an S3 server checks the SHA-256 of an upload."""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from storage.contract import Denied, QuotaExceeded, StoreError, Throttled
from storage.s3.client import Clients
from storage.s3.errors import code_of, s3_errors, status_of

_DATA, _OTHER = b"what is sent", b"something else"
_REFUSED, _PASSING = (400, 501), ("RequestTimeout", "IncompleteBody")


def b64(digest: bytes) -> str:
    """A digest in S3's notation."""
    return base64.b64encode(digest).decode()


def b64_sha256(data: bytes) -> str:
    """SHA-256 in S3's notation."""
    return b64(hashlib.sha256(data).digest())


def sha256_of(data: bytes) -> dict[str, str]:
    """Parameters of a request whose body the server is to verify.

    The algorithm is not named too: S3 ignores it next to a checksum, and some servers hash once more for it.
    """
    return {"ChecksumSHA256": b64_sha256(data)}


def sha_hex(checksum: str) -> str | None:
    """The hex digest of a SHA-256 in S3's notation; None if it is not one."""
    try:
        raw = base64.b64decode(checksum, validate=True)
    except ValueError:
        return None
    return raw.hex() if len(raw) == hashlib.sha256().digest_size else None


class Checksums:
    """Tests a server once, at its first file: a wrong checksum must be refused and a right one kept.

    A server that passes has verified the hash that it reports for a file. Any other server gets no checksums, and its
    objects are read back. The probes are one object and one unfinished upload under `folder`; both are removed.
    """

    def __init__(self, clients: Clients, bucket: str, folder: str, address: str) -> None:
        self._clients = clients
        self._bucket = bucket
        self._folder = folder
        self._address = address
        self._lock = threading.Lock()
        self._known: dict[str, bool] = {}

    @property
    def of_objects(self) -> bool:
        """Whether the server verifies an object sent in one request. Raises StoreError, by the store's rules."""
        return self._ask("objects", self._try_object)

    @property
    def objects_known(self) -> bool:
        """Whether `of_objects` has run and is true; sends nothing."""
        return self._known.get("objects", False)

    @property
    def of_parts(self) -> bool:
        """Whether the server verifies the parts of an upload and the whole. Raises StoreError."""
        return self._ask("parts", self._try_parts)

    def _ask(self, what: str, probe: Callable[[str], bool]) -> bool:
        with self._lock:
            if what not in self._known:
                self._known[what] = probe(f"{self._folder}checksum-{secrets.token_hex(16)}")
            return self._known[what]

    def _try_object(self, key: str) -> bool:
        client, place = self._clients.once, {"Bucket": self._bucket, "Key": key}
        try:
            return (
                self._accepted(client.put_object, **place, Body=_DATA, **sha256_of(_OTHER)) is None
                and self._accepted(client.put_object, **place, Body=_DATA, **sha256_of(_DATA)) is not None
                and self._kept(place) == b64_sha256(_DATA)
            )
        finally:
            self._accepted(client.delete_object, **place)

    def _try_parts(self, key: str) -> bool:
        client, place = self._clients.once, {"Bucket": self._bucket, "Key": key}
        begun = self._accepted(client.create_multipart_upload, **place, ChecksumAlgorithm="SHA256")
        if begun is None:
            return False
        part, send = {**place, "UploadId": begun["UploadId"], "PartNumber": 1}, self._clients.checked.upload_part
        try:
            return (
                self._accepted(send, **part, Body=_DATA, **sha256_of(_OTHER)) is None
                and self._accepted(send, **part, Body=_DATA, **sha256_of(_DATA)) is not None
            )
        finally:
            self._accepted(client.abort_multipart_upload, **place, UploadId=begun["UploadId"])

    def _accepted(self, send: Callable[..., Any], **parameters: Any) -> Mapping[str, Any] | None:
        """The answer; None if the server refuses these parameters. Raises StoreError if it fails for another reason."""
        try:
            with s3_errors(self._address, "a test of checksums"):
                answer: Mapping[str, Any] = send(**parameters)
                return answer
        except StoreError as error:
            cause = error.__cause__
            refused = isinstance(cause, ClientError) and status_of(cause) in _REFUSED and code_of(cause) not in _PASSING
            if refused and not isinstance(error, Denied | Throttled | QuotaExceeded):
                return None
            raise

    def _kept(self, place: Mapping[str, str]) -> str | None:
        answer = self._accepted(self._clients.once.head_object, **place, ChecksumMode="ENABLED") or {}
        checksum = answer.get("ChecksumSHA256")
        return checksum if isinstance(checksum, str) else None
