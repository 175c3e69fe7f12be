"""The three ways of sending contents to the fake Drive: simple, multipart and resumable; knows no faults."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from email.message import Message
from email.parser import BytesParser
from typing import Any

from tests.storage.drive.fake import answers, files, legacy, routes
from tests.storage.drive.fake.answers import Answer, PlainText, Refused
from tests.storage.drive.fake.files import Call
from tests.storage.drive.fake.tree import Content
from tests.storage.drive.fake.uploads import Session

SMALL = 5 << 20
"""Bytes that the guide allows simple and multipart uploads."""
ROUTES = routes.ROUTES | legacy.ROUTES


def split(kind: str, body: bytes) -> tuple[dict[str, Any], bytes, str]:
    """Metadata, media and media type of a multipart/related body. Raises Refused."""
    described = Message()
    described["Content-Type"] = kind
    boundary = described.get_boundary()
    if described.get_content_type() != "multipart/related" or not boundary:
        raise answers.bad_request("Bad Request: multipart/related with a boundary is required.")
    mark = b"--" + boundary.encode()
    newline = b"\r\n" if mark + b"\r\n" in body else b"\n"
    parts = (newline + body).split(newline + mark)
    if len(parts) != 4 or not parts[3].startswith(b"--"):
        raise answers.bad_request("Malformed multipart body.")
    (_, metadata), (head, media) = (_part(part.removeprefix(newline), newline) for part in parts[1:3])
    if head.get("Content-Transfer-Encoding") == "base64":
        media = base64.b64decode(media)
    return document(metadata), media, head.get_content_type()


def _part(part: bytes, newline: bytes) -> tuple[Message, bytes]:
    head, _, payload = part.partition(newline * 2)
    return BytesParser().parsebytes(head), payload


def document(body: bytes) -> dict[str, Any]:
    """Metadata. Raises Refused."""
    try:
        read = json.loads(body or b"{}")
    except ValueError:
        raise Refused(400, "parseError", "Parse Error") from None
    if not isinstance(read, dict):
        raise Refused(400, "parseError", "Parse Error")
    return read


def carry(call: Call, body: bytes, flip: bool) -> Answer:
    """A request to a method, with or without media. Raises Refused."""
    kind = call.headers.get("Content-Type") or ""
    way = call.query.get("uploadType", "")
    if not call.method.upload:
        return run(replace(call, body=document(body)))
    if way == "resumable":
        return begin(replace(call, body=document(body)))
    if way == "media":
        metadata, media, media_type = document(b""), body, kind
    elif way == "multipart":
        metadata, media, media_type = split(kind, body)
    else:
        raise answers.bad_request("Invalid upload type.")
    if len(media) > SMALL:
        raise Refused(413, "uploadTooLarge", "Request is too large.")
    _arrived(call, media)
    content = Content(flipped(media) if flip else media)
    return run(replace(call, body=metadata, media=content, media_type=media_type))


def _arrived(call: Call, media: bytes) -> None:
    """Counted whatever becomes of it."""
    call.access.grant.account.received += len(media)


def run(call: Call) -> Answer:
    """One method, alone: nothing happens to the world between its look and its write. Raises Refused."""
    world = call.access.world
    if call.media is not None:
        call.media.sums  # noqa: B018 - taken here, so that nobody waits for it
    with world.lock:
        return ROUTES[call.method.name](call)


def begin(call: Call) -> Answer:
    """A resumable session, if the upload could succeed as things stand. Raises Refused."""
    world, length = call.access.world, call.headers.get("X-Upload-Content-Length")
    call = replace(call, media_type=call.headers.get("X-Upload-Content-Type") or "")
    with world.lock:
        planned = replace(call, body=legacy.translated(call.body)) if call.version == "v2" else call
        if call.version == "v2" and "fileId" in call.ids:
            legacy.check_etag(call)
        creates = "fileId" not in call.ids
        file = files.plan(planned, taken=world.race == "start") if creates else files.plan_update(planned)
        world.check_room(file.owner, int(length or 0) - (0 if creates else file.size))
        session = world.uploads.start(call, int(length) if length else None, call.now)
    where = f"https://www.googleapis.com/upload/drive/{call.version}/files"
    where += "" if creates else f"/{file.id}"
    told = {"Location": f"{where}?uploadType=resumable&upload_id={session.id}", "X-GUploader-UploadID": session.id}
    return Answer(200, headers=told)


def put(session: Session, headers: Any, body: bytes, now: float, keep: int | None) -> Answer:
    """A PUT to a session: a part, the end, or a question how far it is. Raises PlainText."""
    if session.answer is not None:
        return session.answer
    _arrived(session.call, body)
    if not session.take(headers.get("Content-Range") or "", body, keep):
        return session.progress()
    call = replace(session.call, media=Content(bytes(session.data)), now=now)
    session.data.clear()
    try:
        session.answer = run(call)
    except Refused as refused:
        session.answer = refused.answer()
    return session.answer


def abandon(session: Session, headers: Any, body: bytes) -> None:
    """The client went away in the middle of a PUT: what arrived stays, in whole units."""
    _arrived(session.call, body)
    first = re.match(r"bytes (\d+)-", headers.get("Content-Range") or "bytes 0-")
    if session.answer is None and first and int(first[1]) == len(session.data):
        try:
            session.take(f"bytes {first[1]}-{int(first[1]) + len(body) - 1}/*", body)
        except PlainText:
            return


def flipped(data: bytes) -> bytes:
    """The same with one bit changed."""
    return data[:-1] + bytes([data[-1] ^ 1]) if data else data
