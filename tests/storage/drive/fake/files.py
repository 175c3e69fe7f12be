"""What files.create, update and delete of the fake Drive do, whatever the version of the API; knows no HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from email.message import Message
from typing import Any

from tests.storage.drive.fake import answers
from tests.storage.drive.fake.schema import Method, problems
from tests.storage.drive.fake.tree import FOLDER, SHORTCUT, Content, File
from tests.storage.drive.fake.world import Access

SCRIPT = "application/vnd.google-apps.drive-sdk"
EITHER = {
    "name", "mimeType", "description", "starred", "properties", "appProperties", "modifiedTime", "createdTime",
    "originalFilename", "contentHints", "writersCanShare", "copyRequiresWriterPermission", "viewedByMeTime",
}  # fmt: skip
ON_CREATE = EITHER | {"id", "parents", "shortcutDetails", "kind"}
ON_UPDATE = EITHER | {"trashed"}
LONGEST_PROPERTY = 124
"""Bytes of key and value in UTF-8 together."""


@dataclass(frozen=True)
class Call:
    """One request that got through. `body` is the metadata in the names of v3."""

    access: Access
    method: Method
    ids: Mapping[str, str]
    query: Mapping[str, str]
    headers: Message
    body: dict[str, Any]
    media: Content | None
    media_type: str
    now: float

    @property
    def version(self) -> str:
        return self.method.name[:2]


def create(call: Call) -> File:
    """files.create. Raises Refused."""
    return call.access.tree.put(plan(call, taken=True))


def plan(call: Call, taken: bool) -> File:
    """The file that a create would make; `taken`: mind an id in use. Raises Refused."""
    meta, access = call.body, call.access
    _check(meta, ON_CREATE, creating=True)
    mime = meta.get("mimeType") or call.media_type or "application/octet-stream"
    id_ = _claim(call, mime, taken)
    parent = _parent(access, meta)
    file = File(
        id_ or access.tree.new_id(), meta.get("name", "Untitled"), mime, None if parent.drive else access.user,
        parent.drive, (parent.id,), access.grant.client, access.user, call.now, call.now, 1,
    )  # fmt: skip
    if mime == SHORTCUT:
        file = replace(file, target=_target(meta))
    elif not mime.startswith("application/vnd.google-apps."):
        content = call.media or Content(b"")
        access.world.check_room(file.owner, len(content.data))
        file = replace(file, content=content, revision=access.tree.new_id("0B", 44))
    return _described(call, file, meta)


def update(call: Call) -> File:
    """files.update: metadata, contents or both. Raises Refused."""
    file = plan_update(call)
    tree = call.access.tree
    if call.media is not None:
        if file.content is None:
            raise answers.bad_request("The media upload is not supported for this file.")
        call.access.world.check_room(file.owner, len(call.media.data) - file.size)
        file = replace(file, content=call.media, revision=tree.new_id("0B", 44))
    steps = 3 if call.media is not None else 1
    return tree.put(replace(file, version=file.version + steps))


def plan_update(call: Call) -> File:
    """The file with what an update says of its metadata. Raises Refused."""
    meta, access = call.body, call.access
    file = access.change(call.ids["fileId"])
    _check(meta, ON_UPDATE, creating=False)
    if "trashed" in meta:
        access.change(file.id, "owner", "fileOrganizer")
        file = replace(file, trashed=meta["trashed"])
    else:
        file = replace(file, modified=call.now)
    parents = [id_ for id_ in file.parents if id_ not in call.query.get("removeParents", "").split(",")]
    parents += [access.parent(id_).id for id_ in call.query.get("addParents", "").split(",") if id_]
    if len(parents) > 1:
        raise answers.Refused(403, "cannotAddParent", "Increasing the number of parents is not allowed")
    return _described(call, replace(file, parents=tuple(parents)), meta)


def delete(call: Call) -> None:
    """files.delete, past the trash. Raises Refused."""
    file = call.access.change(call.ids["fileId"], "owner", "organizer")
    call.access.tree.delete(file)


def _check(meta: dict[str, Any], writable: set[str], creating: bool) -> None:
    """Raises Refused for metadata that is no metadata or not to be written."""
    wrong = problems("v3", "File", {name: value for name, value in meta.items() if value is not None})
    wrong = [problem for problem in wrong if "properties" not in problem.lower() and "date-time" not in problem]
    if wrong:
        raise answers.bad_request(f"Invalid JSON payload received. {wrong[0]}")
    for name in meta:
        if name not in writable:
            raise answers.not_writable("" if creating else name)
    for name in ("properties", "appProperties"):
        for key, value in (meta.get(name) or {}).items():
            if len(f"{key}{'' if value is None else value}".encode()) > LONGEST_PROPERTY:
                message = "Property is too long: key and value must not exceed 124 bytes in UTF-8 together."
                raise answers.Refused(403, "propertyTooLong", message)


def _claim(call: Call, mime: str, taken: bool) -> str | None:
    """The generated id that a create names, if it may be used. Raises Refused."""
    id_, tree, world = call.body.get("id"), call.access.tree, call.access.world
    if id_ is None:
        return None
    if mime.startswith("application/vnd.google-apps.") and mime not in (FOLDER, SHORTCUT, SCRIPT):
        message = "Generated IDs are not supported for Docs Editors formats."
        raise answers.Refused(403, "generatedIdsNotSupported", message)
    if id_ in tree.files:
        if taken:
            raise answers.id_in_use()
        return str(id_)
    if id_ in tree.burnt:
        raise answers.invalid("fileId")
    reserved = tree.reserved.get(id_)
    wrong_user = world.ids == "owner" and reserved is not None and reserved.user != call.access.user
    wrong_type = reserved is not None and (reserved.type == "shortcuts") != (mime == SHORTCUT)
    if reserved is None or wrong_user or wrong_type or reserved.space != "drive":
        raise answers.id_not_usable()
    return str(id_)


def _parent(access: Access, meta: dict[str, Any]) -> File:
    parents = meta.get("parents") or ["root"]
    if len(parents) > 1:
        message = "A shared drive item must have exactly one parent."
        raise answers.Refused(403, "teamDrivesParentLimit", message)
    return access.parent(parents[0])


def _target(meta: dict[str, Any]) -> str:
    target = (meta.get("shortcutDetails") or {}).get("targetId")
    if not target:
        raise answers.bad_request("The shortcutDetails.targetId field is required.")
    return str(target)


def _described(call: Call, file: File, meta: dict[str, Any]) -> File:
    """A file with the metadata that both create and update take."""
    client = call.access.grant.client
    own = _merged(file.app_properties.get(client, {}), meta.get("appProperties"))
    return replace(
        file,
        name=meta.get("name", file.name),
        mime=meta.get("mimeType", file.mime),
        description=meta.get("description", file.description),
        starred=meta.get("starred", file.starred),
        created=_seconds(meta, "createdTime", file.created),
        modified=_seconds(meta, "modifiedTime", file.modified),
        properties=_merged(file.properties, meta.get("properties")),
        app_properties={**file.app_properties, client: own},
    )


def _merged(old: Mapping[str, str], new: dict[str, str | None] | None) -> Mapping[str, str]:
    """JSON merge: null removes."""
    merged = {**old, **(new or {})}
    return {key: str(value) for key, value in merged.items() if value is not None}


def _seconds(meta: dict[str, Any], name: str, otherwise: float) -> float:
    if meta.get(name) is None:
        return otherwise
    try:
        return datetime.fromisoformat(meta[name]).timestamp()
    except ValueError:
        raise answers.invalid(f"file.{name}", location_type="other") from None
