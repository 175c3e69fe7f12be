"""The S3 gateway of the fake Hugging Face, by its documentation (huggingface.co/docs/hub/storage-buckets-s3).

Documented, and played: path addressing below /NAMESPACE; credentials of the form HFAK…; conditions honored on
PutObject only (ignored on CompleteMultipartUpload and GetObject); ListObjectsV2 only, with '/' as the one delimiter; no
aws-chunked bodies; no user metadata; restricted keys; a redirect in place of an object for clients other than botocore,
aws-cli and aws-sdk-rust.

Assumed, because it does not say: that a condition is decided at one moment (412 for the loser), error codes as S3's,
tags that are no MD5, ranges, checksum headers without effect, ListParts and ListMultipartUploads
(`World.lists_uploads`).
"""

from __future__ import annotations

import email.utils
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.storage.fakes.http import Answer
from tests.storage.hf.fake.world import Bucket, Object, Upload, World

HOST = "s3.hf.co"
_BAD_KEY = re.compile(r"^/|^\./|/$|//|\.\./|\.\.$|\\|\0")
_PROXIED = ("aws-cli", "botocore", "aws-sdk-rust")
_AUTH = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})")


@dataclass(frozen=True)
class Call:
    """One request."""

    world: World
    method: str
    bucket: Bucket
    key: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes


class Refused(Exception):
    """An error of S3."""

    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


def answer(world: World, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """The answer to a request to the gateway; header names are in lower case."""
    parts = urlsplit(target)
    try:
        _check_signature(world, method, parts.path, parts.query, headers)
        if "aws-chunked" in headers.get("content-encoding", "") or "x-amz-trailer" in headers:
            raise Refused(400, "InvalidRequest", "trailing checksums are not parsed")
        namespace, _, rest = unquote(parts.path).lstrip("/").partition("/")
        name, _, key = rest.partition("/")
        bucket = world.buckets.get(f"{namespace}/{name}")
        if bucket is None:
            raise Refused(404, "NoSuchBucket")
        if _BAD_KEY.search(key):
            raise Refused(400, "InvalidRequest", "this key is not allowed")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return _route(Call(world, method, bucket, key, query, headers, body))
    except Refused as refused:
        text = f"<Error><Code>{refused.code}</Code><Message>{escape(refused.message)}</Message></Error>"
        return _xml(text if method != "HEAD" else "", refused.status)


def _route(call: Call) -> Answer:
    query = call.query
    if not call.key:
        if call.method == "GET" and "uploads" in query:
            return _list_uploads(call)
        if call.method == "GET" and query.get("list-type") == "2":
            return _list(call)
        raise Refused(501, "NotImplemented")
    if call.method == "POST":
        return _begin(call) if "uploads" in query else _complete(call)
    if "uploadId" in query:
        return {"PUT": _part, "GET": _list_parts, "DELETE": _abort}[call.method](call)
    return {"PUT": _put, "GET": _get, "HEAD": _get, "DELETE": _delete}[call.method](call)


def _put(call: Call) -> Answer:
    with call.world.lock:
        there = call.bucket.objects.get(call.key)
        if call.headers.get("if-none-match") == "*" and there:
            raise Refused(412, "PreconditionFailed")
        wanted = call.headers.get("if-match")
        if wanted and (there is None or there.etag != wanted):
            raise Refused(412, "PreconditionFailed")
        made = call.bucket.objects[call.key] = _object(call.world, call.body)
    return Answer(200, headers={"ETag": made.etag})


def _get(call: Call) -> Answer:
    found = call.bucket.objects.get(call.key)
    if found is None:
        raise Refused(404, "NoSuchKey")
    if call.method == "GET" and not any(name in call.headers.get("user-agent", "").lower() for name in _PROXIED):
        return Answer(302, headers={"Location": "https://cdn.hf.co/elsewhere"})
    headers = {"ETag": found.etag, "Last-Modified": email.utils.formatdate(found.modified, usegmt=True)}
    data, kind = found.data, "binary/octet-stream"
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", call.headers.get("range", ""))
    if asked:
        first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
        if first >= len(data):
            raise Refused(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return Answer(206, data[first : last + 1], headers, kind)
    return Answer(200, data, headers, kind)


def _delete(call: Call) -> Answer:
    with call.world.lock:
        call.bucket.objects.pop(call.key, None)
    return Answer(204)


def _list(call: Call) -> Answer:
    query = call.query
    if query.get("delimiter") not in (None, "", "/"):
        raise Refused(400, "InvalidArgument")
    prefix, most = query.get("prefix", ""), min(int(query.get("max-keys", "1000")), 1000)
    start = query.get("continuation-token") or query.get("start-after", "")
    with call.world.lock:
        names = sorted(name for name in call.bucket.objects if name.startswith(prefix) and name > start)
        rows = [(name, call.bucket.objects[name]) for name in names[:most]]
    told = "".join(
        f"<Contents><Key>{_shown(call, name)}</Key><Size>{len(one.data)}</Size><ETag>{escape(one.etag)}</ETag>"
        f"<LastModified>{_iso(one.modified)}</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
        for name, one in rows
    )
    more = len(names) > most
    token = f"<NextContinuationToken>{_shown(call, rows[-1][0])}</NextContinuationToken>" if more and rows else ""
    encoding = "<EncodingType>url</EncodingType>" if query.get("encoding-type") else ""
    return _xml(
        f"<ListBucketResult>{encoding}<KeyCount>{len(rows)}</KeyCount><MaxKeys>{most}</MaxKeys>"
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{told}{token}</ListBucketResult>"
    )


def _begin(call: Call) -> Answer:
    id_ = secrets.token_hex(8)
    with call.world.lock:
        call.bucket.uploads[id_] = Upload(call.key, call.world.now())
    return _xml(
        f"<InitiateMultipartUploadResult><Key>{escape(call.key)}</Key><UploadId>{id_}</UploadId>"
        "</InitiateMultipartUploadResult>"
    )


def _upload(call: Call) -> Upload:
    found = call.bucket.uploads.get(call.query["uploadId"])
    if found is None or found.key != call.key:
        raise Refused(404, "NoSuchUpload")
    return found


def _part(call: Call) -> Answer:
    with call.world.lock:
        made = _upload(call).parts[int(call.query["partNumber"])] = _object(call.world, call.body)
    return Answer(200, headers={"ETag": made.etag})


def _complete(call: Call) -> Answer:
    """No condition counts here."""
    with call.world.lock:
        upload = _upload(call)
        wanted = re.findall(r"<PartNumber>(\d+)</PartNumber>", call.body.decode())
        if not wanted or any(int(number) not in upload.parts for number in wanted):
            raise Refused(400, "InvalidPart")
        made = _object(call.world, b"".join(upload.parts[int(number)].data for number in wanted))
        call.bucket.objects[call.key] = made
        del call.bucket.uploads[call.query["uploadId"]]
    return _xml(f"<CompleteMultipartUploadResult><ETag>{escape(made.etag)}</ETag></CompleteMultipartUploadResult>")


def _abort(call: Call) -> Answer:
    with call.world.lock:
        _upload(call)
        del call.bucket.uploads[call.query["uploadId"]]
    return Answer(204)


def _list_parts(call: Call) -> Answer:
    if not call.world.lists_uploads:
        raise Refused(501, "NotImplemented")
    told = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(part.etag)}</ETag><Size>{len(part.data)}</Size></Part>"
        for number, part in sorted(_upload(call).parts.items())
    )
    return _xml(f"<ListPartsResult><Bucket>x</Bucket><IsTruncated>false</IsTruncated>{told}</ListPartsResult>")


def _list_uploads(call: Call) -> Answer:
    if not call.world.lists_uploads:
        raise Refused(501, "NotImplemented")
    with call.world.lock:
        found = [(id_, one) for id_, one in call.bucket.uploads.items() if one.key.startswith(call.query["prefix"])]
    told = "".join(
        f"<Upload><Key>{_shown(call, one.key)}</Key><UploadId>{id_}</UploadId>"
        f"<Initiated>{_iso(one.begun)}</Initiated></Upload>"
        for id_, one in found
    )
    return _xml(
        "<ListMultipartUploadsResult><Bucket>x</Bucket><IsTruncated>false</IsTruncated>"
        f"{told}</ListMultipartUploadsResult>"
    )


def _object(world: World, data: bytes) -> Object:
    """Its tag is a hash that is no MD5."""
    return Object(data, world.now(), f'"{hashlib.sha256(data).hexdigest()}"')


def _shown(call: Call, key: str) -> str:
    return quote(key, safe="/") if call.query.get("encoding-type") else escape(key)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _xml(text: str, status: int = 200) -> Answer:
    return Answer(status, f"<?xml version='1.0'?>{text}".encode() if text else b"", type="application/xml")


def _check_signature(world: World, method: str, path: str, query: str, headers: Mapping[str, str]) -> None:
    """Raises Refused unless the request is signed with a known secret (AWS Signature Version 4)."""
    found = _AUTH.fullmatch(headers.get("authorization", ""))
    if not found:
        raise Refused(403, "AccessDenied")
    if found[1] not in world.keys:
        raise Refused(403, "InvalidAccessKeyId")
    pairs = sorted(pair if "=" in pair else f"{pair}=" for pair in query.split("&") if pair)
    signed = [f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in found[3].split(";")]
    whole = [method, path, "&".join(pairs), "".join(signed), found[3], headers.get("x-amz-content-sha256", "")]
    of = hashlib.sha256("\n".join(whole).encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers.get('x-amz-date', '')}\n{found[2]}\n{of}"
    key = f"AWS4{world.keys[found[1]]}".encode()
    for part in found[2].split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    if hmac.new(key, text.encode(), "sha256").hexdigest() != found[4]:
        raise Refused(403, "SignatureDoesNotMatch")
