"""Files, users and permissions as the JSON of v3 and of v2; decides nothing."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from tests.storage.drive.fake.tree import FOLDER, SHORTCUT, File, at_least
from tests.storage.drive.fake.world import Access, World

WEB = "https://drive.google.com/"


def moment(seconds: float) -> str:
    """RFC 3339 with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def etag(file: File) -> str:
    """Of v2: another one after every change of contents or metadata."""
    return f'"{base64.urlsafe_b64encode(f"{file.id[-6:]}.{file.version}".encode()).decode().rstrip("=")}"'


def user(world: World, email: str, me: bool) -> dict[str, Any]:
    """A User of v3."""
    account = world.by_email(email)
    number = account.permission_id if account else "0"
    name = email.partition("@")[0]
    return {"kind": "drive#user", "displayName": name, "me": me, "permissionId": number, "emailAddress": email}


def permission(world: World, email: str, role: str) -> dict[str, Any]:
    """A Permission of v3."""
    told = user(world, email, False)
    return {
        "kind": "drive#permission", "id": told["permissionId"], "type": "user", "role": role, "emailAddress": email,
        "displayName": told["displayName"], "deleted": False, "pendingOwner": False,
    }  # fmt: skip


def v3(access: Access, file: File) -> dict[str, Any]:
    """Everything that this user and client see of a file."""
    told: dict[str, Any] = {
        "kind": "drive#file", "id": file.id, "name": file.name, "mimeType": file.mime, "starred": file.starred,
        "trashed": access.tree.is_trashed(file), "explicitlyTrashed": file.trashed, "spaces": ["drive"],
        "version": str(file.version), "createdTime": moment(file.created), "modifiedTime": moment(file.modified),
        "quotaBytesUsed": str(file.size), "webViewLink": f"{WEB}file/d/{file.id}/view", "writersCanShare": True,
        "isAppAuthorized": file.client == access.grant.client,
    }  # fmt: skip
    told |= _place(access, file) | _contents(file) | _sharing(access, file)
    own = file.app_properties.get(access.grant.client, {})
    extras = {"description": file.description, "properties": dict(file.properties), "appProperties": dict(own)}
    return told | {name: value for name, value in extras.items() if value}


def _place(access: Access, file: File) -> dict[str, Any]:
    """Parents that the asker may see, and the shared drive."""
    parents = [id_ for id_ in file.parents if id_ in access.tree.files and access.sees(access.tree.files[id_])]
    told: dict[str, Any] = {"parents": parents} if parents else {}
    return told | ({"driveId": file.drive, "teamDriveId": file.drive} if file.drive else {})


def _contents(file: File) -> dict[str, Any]:
    if file.mime == SHORTCUT:
        return {"shortcutDetails": {"targetId": file.target or ""}}
    if file.content is None:
        return {}
    sums = {f"{name}Checksum": value for name, value in file.content.sums.items()}
    names = {"originalFilename": file.name, "headRevisionId": file.revision}
    return {"size": str(file.size), "webContentLink": f"{WEB}uc?id={file.id}&export=download", **sums, **names}


def _sharing(access: Access, file: File) -> dict[str, Any]:
    world, role, roles = access.world, access.tree.role(access.user, file), access.tree.roles(file)
    told: dict[str, Any] = {"shared": len(roles) > 1, "capabilities": capabilities(file, role)}
    if file.owner:
        told["owners"] = [user(world, file.owner, file.owner == access.user)]
        told["ownedByMe"] = file.owner == access.user
    if at_least(role, "writer") and not file.drive:
        told["permissions"] = [permission(world, email, given) for email, given in roles.items()]
        told["permissionIds"] = [item["id"] for item in told["permissions"]]
    return told


def capabilities(file: File, role: str | None) -> dict[str, bool]:
    """What the asker may do."""
    removes = at_least(role, "fileOrganizer" if file.drive else "owner")
    deletes = at_least(role, "organizer" if file.drive else "owner")
    writes = at_least(role, "writer")
    return {
        "canEdit": writes, "canRename": writes, "canModifyContent": writes and file.content is not None,
        "canAddChildren": writes and file.mime == FOLDER, "canTrash": removes, "canDelete": deletes,
        "canDownload": file.content is not None, "canListChildren": file.mime == FOLDER,
    }  # fmt: skip


def v2(access: Access, file: File) -> dict[str, Any]:
    """The same in the names of v2."""
    new = v3(access, file)
    same = (
        "id", "mimeType", "version", "md5Checksum", "sha1Checksum", "sha256Checksum", "headRevisionId", "driveId",
        "originalFilename", "description", "quotaBytesUsed", "ownedByMe", "shared", "spaces", "explicitlyTrashed",
    )  # fmt: skip
    told = {name: new[name] for name in same if name in new}
    told |= {
        "kind": "drive#file", "etag": etag(file), "title": file.name, "createdDate": new["createdTime"],
        "modifiedDate": new["modifiedTime"], "alternateLink": new["webViewLink"],
        "selfLink": f"https://www.googleapis.com/drive/v2/files/{file.id}",
        "editable": new["capabilities"]["canEdit"],
        "labels": {"starred": file.starred, "hidden": False, "trashed": new["trashed"], "restricted": False,
                   "viewed": True},
        "parents": [{"kind": "drive#parentReference", "id": id_, "isRoot": id_ == access.grant.account.root}
                    for id_ in new.get("parents", [])],
        "properties": [{"kind": "drive#property", "key": key, "value": value, "visibility": "PUBLIC"}
                       for key, value in file.properties.items()],
    }  # fmt: skip
    if file.content is not None:
        told["fileSize"] = new["size"]
        told["downloadUrl"] = f"https://www.googleapis.com/drive/v2/files/{file.id}?alt=media&source=downloadUrl"
    return told
