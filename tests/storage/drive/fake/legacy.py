"""The methods of Drive v2 that the fake plays: above all the one write that a stale etag stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.storage.drive.fake import answers, files, render, routes
from tests.storage.drive.fake.answers import Answer
from tests.storage.drive.fake.files import Call
from tests.storage.drive.fake.schema import problems
from tests.storage.drive.fake.tree import File

NAMES = {"title": "name", "modifiedDate": "modifiedTime", "createdDate": "createdTime"}
READ_ONLY = {"etag", "kind", "selfLink", "fileSize", "md5Checksum", "sha1Checksum", "sha256Checksum", "version"}
"""What a client may send back as it was told, without effect."""


def translated(body: dict[str, Any]) -> dict[str, Any]:
    """Metadata of v2 in the names of v3. Raises Refused."""
    wrong = problems("v2", "File", body)
    if wrong:
        raise answers.bad_request(f"Invalid JSON payload received. {wrong[0]}")
    told = {NAMES.get(name, name): value for name, value in body.items() if name not in READ_ONLY}
    if "parents" in told:
        told["parents"] = [parent["id"] for parent in told["parents"]]
    if "labels" in told:
        told["trashed"] = told.pop("labels").get("trashed", False)
    if "properties" in told:
        told["properties"] = {item["key"]: item.get("value") for item in told["properties"]}
    return told


def insert(call: Call) -> Answer:
    return _told(call, files.create(_new(call)))


def get(call: Call) -> Answer:
    file = call.access.find(call.ids["fileId"])
    if call.query.get("alt") == "media":
        return routes.media(call, file)
    if call.headers.get("If-None-Match") == render.etag(file):
        return Answer(304)
    return _told(call, file)


def update(call: Call) -> Answer:
    """files.update and files.patch. Nothing comes between the look at the etag and the write: see Server."""
    check_etag(call)
    return _told(call, files.update(_new(call)))


def check_etag(call: Call) -> None:
    """Raises Refused (412) if the request is bound to another state than the file's."""
    wanted = call.headers.get("If-Match")
    if wanted not in (None, "*") and wanted != render.etag(call.access.find(call.ids["fileId"])):
        raise answers.condition_not_met()


def delete(call: Call) -> Answer:
    check_etag(call)
    files.delete(call)
    return Answer(204)


def _new(call: Call) -> Call:
    return replace(call, body=translated(call.body))


def _told(call: Call, file: File) -> Answer:
    answer = routes.answer(call, "File", render.v2(call.access, file))
    answer.headers["ETag"] = render.etag(file)
    return answer


ROUTES: dict[str, Callable[[Call], Answer]] = {
    "v2.files.generateIds": routes.generate_ids,
    "v2.files.insert": insert,
    "v2.files.get": get,
    "v2.files.update": update,
    "v2.files.patch": update,
    "v2.files.delete": delete,
}
