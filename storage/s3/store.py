"""A store in a bucket of S3 or of a compatible server; does not read the bytes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from storage.answers import date_of, moment_of
from storage.capabilities import Doubt
from storage.contract import (
    BadAddress,
    BlockHash,
    Denied,
    Exists,
    Missing,
    Ref,
    Stat,
    StoreError,
    TooLong,
    check_name,
    check_prefix,
    check_ref,
)
from storage.memory import read_source
from storage.ranges import BEHIND_THE_END, WHOLE, Asked, not_whole
from storage.s3.address import S3Address
from storage.s3.checksums import Checksums, sha256_of, sha_hex
from storage.s3.client import Clients
from storage.s3.errors import Failure, NotS3, header_of, is_page, s3_errors, status_of, translate
from storage.s3.multipart import Multipart, composite, part_size
from storage.uploads import unreadable

GOOD_SERVERS = ("seaweedfs", "minio", "ceph object gateway")
"""Servers that document one winner of If-None-Match, or passed thousands of races (docs/contributing/storage.md), by
the beginning of their Server header in lower case."""
BAD_SERVERS = {"werkzeug": "moto (on Werkzeug)"}
"""Servers that check and then act, so that two writers win now and then."""
IN_PARTS = 16 << 20
"""File size from which a file is sent in parts, bytes."""


class S3Store:
    """One request writes one whole object; a long file is sent in parts, which the last request makes one object.

    Only parts of a file are retried here. Refs are names; keys are the address's prefix and a name.
    """

    unique_names = True

    def __init__(self, where: S3Address, *, read_only: bool = False) -> None:
        self.address = str(where)
        self.where = where
        self.read_only = read_only
        self.clock_is_local = False
        self._bucket = where.bucket
        self._clients = Clients(where, self.address)
        self._multipart = Multipart(self._clients, where.bucket, self.address)
        self._checksums = Checksums(self._clients, where.bucket, f"{where.root}selftest/", self.address)
        self._bucket_is_there = False

    def put(self, name: str, data: bytes | Path) -> Ref:
        check_name(name)
        self._check_writable(name)
        self._put(name, data, new=False)
        return Ref(name)

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        check_name(name)
        self._check_writable(name)
        self._send(name, data, True, **self._checks(data))
        return Ref(name)

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        """As base.Store. For a file in parts, a server that ignores the condition can let two writers race; few do."""
        check_name(name)
        self._check_writable(name)
        self._put(name, data, new=True)
        return Ref(name)

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        name = check_ref(ref, self.address)
        with s3_errors(self.address, name):
            answer = self._clients.once.get_object(**self._place(name))
            size = answer.get("ContentLength")
            if _status(answer) != WHOLE or size is None:
                answer["Body"].close()
                raise not_whole(f"{self.address}: {name}", _status(answer))
            if limit is not None and size > limit:
                answer["Body"].close()
                raise TooLong(f"{self.address}: {name} has {size} bytes, more than the {limit} allowed here.")
            return _body(answer)

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise ValueError(f"negative range {start}+{length}")
        name = check_ref(ref, self.address)
        if length == 0:
            self.stat(ref)
            return b""
        asked = Asked(f"{self.address}: {name}", start, length, lambda: self.stat(ref).size)
        try:
            answer = self._clients.once.get_object(**self._place(name), Range=f"bytes={start}-{start + length - 1}")
        except Failure as error:
            if status_of(error) == BEHIND_THE_END:
                return asked.checked(BEHIND_THE_END, header_of(error, "content-range"), b"")
            raise translate(error, self.address, name) from error
        if _status(answer) == WHOLE and answer.get("ContentLength", 0) > length:
            answer["Body"].close()
            raise BadAddress(f"{self.address} cannot hold a run: the server ignores the range of a read.")
        with s3_errors(self.address, name):
            data = _body(answer)
        return asked.checked(_status(answer), answer.get("ContentRange", ""), data)

    def stat(self, ref: Ref) -> Stat:
        name = check_ref(ref, self.address)
        try:
            found = self._clients.once.head_object(**self._place(name), ChecksumMode="ENABLED")
            stat = Stat(ref, name, found["ContentLength"], moment_of(found["LastModified"]))
        except Failure as error:
            raise self._why(error, name) from error
        self._bucket_is_there = True
        return self._with_hash(stat, found.get("ChecksumSHA256"))

    def delete(self, ref: Ref) -> None:
        name = check_ref(ref, self.address)
        self._check_writable(name)
        try:
            with s3_errors(self.address, name):
                self._clients.once.delete_object(**self._place(name))
        except Missing:
            return  # some servers report that

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        """In name order on every server: some sort by folder, so a listing is read completely first."""
        check_prefix(prefix)
        found = sorted(self._listed(prefix, after or ""), key=lambda stat: stat.name)
        return iter(found)

    def now(self) -> float:
        """The Date of a fresh answer; this machine's clock (`clock_is_local`) if the server sends none."""
        with s3_errors(self.address, "the bucket"):
            answer = self._clients.once.list_objects_v2(Bucket=self._bucket, Prefix=f"{self.where.root}now/", MaxKeys=1)
            date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
            self.clock_is_local = date is None
            return time.time() if date is None else date_of(date)

    def ref(self, name: str) -> Ref:
        return Ref(check_name(name))

    def fresh(self) -> S3Store:
        """As wrapper.Reconnects."""
        return S3Store(self.where, read_only=self.read_only)

    def block_of(self, size: int) -> int | None:
        """As digests.HashesBlocks."""
        in_parts = size >= IN_PARTS and not self.read_only
        return part_size(size) if in_parts and self._checksums.of_parts else None

    def credentials_source(self) -> str | None:
        """Source of the credentials, never their content; None without credentials."""
        return self._clients.credentials_source()

    def doubt(self) -> Doubt:
        """As capabilities.IsDoubtful: by the server's name for itself, after its first answer."""
        if self.where.endpoint_url is None:
            return Doubt()  # AWS, which documents it
        if not self._clients.server:
            with suppress(StoreError):
                self.now()
        name = self._clients.server.lower()
        bad = next((said for begin, said in BAD_SERVERS.items() if name.startswith(begin)), "")
        return Doubt(unknown=not name.startswith(GOOD_SERVERS), refused=bad)

    def unfinished(self, prefix: str) -> Iterator[tuple[str, float]]:
        """Names of files of which a server holds parts, and when each upload began, by the store's clock."""
        check_prefix(prefix)
        for upload in self._multipart.unfinished(self.where.root + prefix):
            name = upload.key.removeprefix(self.where.root)
            yield name, upload.begun.timestamp()

    def give_up(self, name: str) -> None:
        """Discard the parts of every unfinished upload of a name on the server."""
        self._check_writable(check_name(name))
        key = self.where.root + name
        for upload in [u for u in self._multipart.unfinished(key) if u.key == key]:
            self._multipart.abort(upload)

    def _checks(self, data: bytes) -> dict[str, str]:
        """A SHA-256 for the server to check and keep, if it is known to; a few bytes are not worth the test."""
        return sha256_of(data) if self._checksums.objects_known else {}

    def _put(self, name: str, data: bytes | Path, new: bool) -> None:
        if isinstance(data, bytes):
            self._send(name, data, new, **self._checks(data))
        elif _size(data) >= IN_PARTS:
            self._send_in_parts(name, data, new)
        else:
            content = read_source(data)
            self._send(name, content, new, **(sha256_of(content) if self._checksums.of_objects else {}))

    def _send(self, name: str, data: bytes, new: bool, **checks: str) -> None:
        """`new`: raises Exists if the name is taken."""
        condition = {"IfNoneMatch": "*"} if new else {}
        try:
            self._clients.once.put_object(**self._place(name), Body=data, **condition, **checks)
        except Failure as error:
            if new and status_of(error) == 412:
                raise Exists(f"{self.address}: {name} exists already.") from error
            raise translate(error, self.address, name) from error

    def _send_in_parts(self, name: str, path: Path, new: bool) -> None:
        verified = self._checksums.of_parts
        try:
            self._multipart.put(self.where.root + name, path, verified=verified, new=new)
        except OSError as error:
            raise unreadable(path, error) from error

    def _place(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self.where.root + name}

    def _with_hash(self, stat: Stat, checksum: Any) -> Stat:
        """The server's own hash. Whether it checks hashes is tested once; a client without write access cannot test."""
        if not isinstance(checksum, str):
            return stat
        if "-" not in checksum:
            return replace(stat, sha256=sha_hex(checksum), hash_tested=self._tested("of_objects"))
        over = composite(checksum, stat.size)
        blocks = BlockHash(part_size(stat.size), over) if over else None
        return replace(stat, block_hash=blocks, hash_tested=self._tested("of_parts"))

    def _tested(self, what: str) -> bool:
        with suppress(StoreError):
            return not self.read_only and getattr(self._checksums, what)
        return False

    def _why(self, error: Exception, name: str) -> StoreError:
        """The StoreError for a refused HEAD, which has no text: if its status is ambiguous, a GET follows."""
        meant = translate(error, self.address, name)
        if isinstance(meant, Missing) and not is_page(error):
            return self._absent(meant)
        if status_of(error) in (400, 401, 403, 301, 307) or is_page(error):
            try:
                with s3_errors(self.address, name):
                    self._clients.once.get_object(**self._place(name), Range="bytes=0-0")["Body"].close()
            except StoreError as plainer:
                return plainer
        return translate(NotS3("a page"), self.address, name) if is_page(error) else meant

    def _absent(self, missing: Missing) -> StoreError:
        """Missing, or BadAddress if the whole bucket is missing."""
        if not self._bucket_is_there:
            try:
                with s3_errors(self.address, "the bucket"):
                    self._clients.once.list_objects_v2(Bucket=self._bucket, Prefix=self.where.root, MaxKeys=1)
            except StoreError as error:
                return error
            self._bucket_is_there = True
        return missing

    def _listed(self, prefix: str, after: str) -> Iterator[Stat]:
        root, start = self.where.root, _safe_start(prefix, after)
        more = {"StartAfter": root + start} if start else {}
        with s3_errors(self.address, f"the list of {prefix or 'all names'}"):
            pages = self._clients.once.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=root + prefix, **more):
                for found in page.get("Contents", []):
                    name = found["Key"].removeprefix(root)
                    if _valid(name) and name.startswith(prefix) and name > after:
                        yield Stat(Ref(name), name, found["Size"], moment_of(found["LastModified"]))

    def _check_writable(self, name: str) -> None:
        if self.read_only:
            raise Denied(f"{self.address} was opened for reading only; refused to change {name}.")


def _safe_start(prefix: str, after: str) -> str:
    """A start for the server's listing that skips no name after `after`, also if the server sorts folder by folder.

    Such a server has "b/1" before "b-1", and starts after the whole folder "b" if it gets "b". The two orders differ
    only where one name has a '/' and the other a '-' or a '.'. A start without these characters below the prefix's
    folder, which is also not a whole part of `after`, comes before the same names in both orders.
    """
    folder = prefix.rpartition("/")[0]
    if not after.startswith(prefix):
        return ""
    inside = re.split("[-.]", after[len(folder) :])[0].rstrip("/")[:-1]
    while inside.endswith("/"):
        inside = inside.rstrip("/")[:-1]
    return folder + inside if inside else ""


def _valid(name: str) -> bool:
    try:
        check_name(name)
    except ValueError:
        return False
    return True


def _body(answer: Mapping[str, Any]) -> bytes:
    try:
        data: bytes = answer["Body"].read()
        return data
    finally:
        answer["Body"].close()


def _status(answer: Mapping[str, Any]) -> int:
    """The HTTP status of a successful answer."""
    status: int = answer["ResponseMetadata"]["HTTPStatusCode"]
    return status


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise unreadable(path, error) from error
