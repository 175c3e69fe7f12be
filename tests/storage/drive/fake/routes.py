"""The methods of Drive v3 that the fake plays, by their names in the discovery document."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

from tests.storage.drive.fake import answers, files, render
from tests.storage.drive.fake.answers import Answer
from tests.storage.drive.fake.fields import parse, select
from tests.storage.drive.fake.files import Call
from tests.storage.drive.fake.query import Query
from tests.storage.drive.fake.tree import FOLDER, ROLES, File, Reserved, at_least

DEFAULTS = {
    "File": "kind,id,name,mimeType",
    "FileList": "kind,incompleteSearch,nextPageToken,files(kind,id,name,mimeType)",
    "Permission": "kind,id,type,role",
    "PermissionList": "kind,nextPageToken,permissions(kind,id,type,role)",
    "Drive": "kind,id,name",
    "DriveList": "kind,nextPageToken,drives(kind,id,name)",
    "GeneratedIds": "*",
    "About": "",
}
_page_number = count(1)
_shuffle = Random(0)


def answer(call: Call, schema: str, document: dict[str, Any]) -> Answer:
    """A resource, as far as `fields` asks for it; v3 tells little unasked."""
    wanted = call.query.get("fields") or (DEFAULTS[schema] if call.version == "v3" else "*")
    if not wanted:
        message = "The 'fields' parameter is required for this method."
        raise answers.Refused(400, "required", message, location="fields", locationType="parameter")
    return Answer.json(select(call.version, schema, parse(wanted), document))


def generate_ids(call: Call) -> Answer:
    number = call.query.get("count") or call.query.get("maxResults") or "10"
    if not re.fullmatch(r"\d+", number) or not 1 <= int(number) <= 1000:
        raise answers.invalid("count", f"Invalid value '{number}'. Values must be within the range: [1, 1000]")
    space, kind = call.query.get("space", "drive"), call.query.get("type", "files")
    if space not in ("drive", "appDataFolder") or kind not in ("files", "shortcuts"):
        raise answers.invalid("space" if kind in ("files", "shortcuts") else "type")
    ids = [call.access.tree.new_id() for _ in range(int(number))]
    call.access.tree.reserved |= dict.fromkeys(ids, Reserved(call.access.user, space, kind))
    return answer(call, "GeneratedIds", {"kind": "drive#generatedIds", "space": space, "ids": ids})


def create(call: Call) -> Answer:
    return answer(call, "File", render.v3(call.access, files.create(call)))


def update(call: Call) -> Answer:
    """If-Match is not looked at: v3 has no conditional writes."""
    return answer(call, "File", render.v3(call.access, files.update(call)))


def delete(call: Call) -> Answer:
    files.delete(call)
    return Answer(204)


def get(call: Call) -> Answer:
    file = call.access.find(call.ids["fileId"])
    if call.query.get("alt") == "media":
        return media(call, file)
    return answer(call, "File", render.v3(call.access, file))


def media(call: Call, file: File) -> Answer:
    """The bytes, or one range of them."""
    if file.content is None:
        raise answers.not_downloadable()
    data, header = file.content.data, call.headers.get("Range") or ""
    if not header:
        return Answer(200, data, type=file.mime)
    first, end = _range(header, len(data))
    told = {"Content-Range": f"bytes {first}-{end - 1}/{len(data)}"}
    return Answer(206, data[first:end], told, file.mime)


def _range(header: str, size: int) -> tuple[int, int]:
    wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", header)
    if not wanted or not (wanted[1] or wanted[2]):
        raise answers.out_of_range(size)
    if wanted[1]:
        first, end = int(wanted[1]), min(int(wanted[2]) + 1 if wanted[2] else size, size)
    else:
        first, end = max(0, size - int(wanted[2])), size
    if first >= end:
        raise answers.out_of_range(size)
    return first, end


def list_files(call: Call) -> Answer:
    """files.list, in no order unless asked, and as late as the account's lists are."""
    if "pageToken" in call.query:
        found = call.access.world.pages.pop(call.query["pageToken"], None)
        if found is None:
            raise answers.invalid("pageToken")
        return _page(call, found)
    query = Query(call.access, call.query.get("q", ""))
    account = call.access.grant.account
    lag = max(account.list_lag, account.name_lag if query.names else 0)
    late = lag or account.lists_stand is not None
    known = call.access.tree.as_of(lag, account.lists_stand) if late else call.access.tree.files
    found = [file for file in known.values() if _listed(call, file) and query.test(file)]
    _shuffle.shuffle(found)
    for key in reversed([key for key in call.query.get("orderBy", "").split(",") if key]):
        _sort(found, key.strip())
    return _page(call, found)


def _listed(call: Call, file: File) -> bool:
    """Whether a list of this kind may show a file at all."""
    if call.query.get("spaces", "drive") != "drive":
        return False
    if not call.access.sees(file) or file.id in (file.drive, call.access.grant.account.root) or not file.parents:
        return False
    if call.query.get("corpora") == "drive" or call.query.get("driveId"):
        return call.access.all_drives and file.drive == call.query.get("driveId")
    return file.drive is None or (call.access.all_drives and call.query.get("includeItemsFromAllDrives") == "true")


def _sort(found: list[File], key: str) -> None:
    name, _, direction = key.partition(" ")
    keys: dict[str, Callable[[File], Any]] = {
        "name": lambda file: file.name, "createdTime": lambda file: file.created,
        "modifiedTime": lambda file: file.modified, "quotaBytesUsed": lambda file: file.size,
        "folder": lambda file: file.mime != FOLDER,
        "name_natural": lambda file: [part.zfill(20) for part in re.findall(r"\d+|\D+", file.name)],
    }  # fmt: skip
    if name not in keys or direction not in ("", "desc"):
        raise answers.invalid("orderBy")
    found.sort(key=keys[name], reverse=direction == "desc")


def _page(call: Call, found: list[File]) -> Answer:
    account = call.access.grant.account
    asked = call.query.get("pageSize", "100")
    if not re.fullmatch(r"\d+", asked) or int(asked) < 1:
        raise answers.invalid("pageSize")
    size = min(int(asked), 1000, account.page_cap or 1000)
    page, rest = found[:size], found[size:]
    shown = page[::2] if account.incomplete else page
    told: dict[str, Any] = {"kind": "drive#fileList", "incompleteSearch": account.incomplete}
    told["files"] = [render.v3(call.access, file) for file in shown]
    if rest:
        told["nextPageToken"] = f"~!!~page{next(_page_number)}"
        call.access.world.pages[told["nextPageToken"]] = rest
    return answer(call, "FileList", told)


def about(call: Call) -> Answer:
    world, account = call.access.world, call.access.grant.account
    used, limit = str(world.used(account)), str(0 if account.service else account.quota)
    quota = {"limit": limit, "usage": used, "usageInDrive": used, "usageInDriveTrash": str(world.used(account, True))}
    me = render.user(world, account.email, True)
    told = {"kind": "drive#about", "user": me, "storageQuota": quota, "maxUploadSize": "5497558138880"}
    return answer(call, "About", told | {"appInstalled": True, "canCreateDrives": False})


def share(call: Call) -> Answer:
    """permissions.create for a user by e-mail address."""
    file = call.access.change(call.ids["fileId"], in_drive="organizer")
    email, role = call.body.get("emailAddress", ""), call.body.get("role", "")
    if role not in ROLES or call.body.get("type") != "user" or not email:
        raise answers.bad_request("The permission type field is required.")
    if role == "owner" or (file.drive is None and role in ("organizer", "fileOrganizer")):
        raise answers.Refused(403, "forbidden", "The transferOwnership parameter must be enabled.")
    _permit(call, file, {**file.permissions, email: role})
    return answer(call, "Permission", render.permission(call.access.world, email, role))


def unshare(call: Call) -> Answer:
    """permissions.delete: writers may take away others' permissions, everybody his own."""
    file = call.access.find(call.ids["fileId"])
    emails = [email for email in file.permissions if _number(call, email) == call.ids["permissionId"]]
    if not emails:
        where = {"location": "permissionId", "locationType": "parameter"}
        raise answers.Refused(404, "notFound", f"Permission not found: {call.ids['permissionId']}.", **where)
    if emails[0] != call.access.user:
        call.access.change(file.id, in_drive="organizer")
    _permit(call, file, {email: role for email, role in file.permissions.items() if email != emails[0]})
    return Answer(204)


def _number(call: Call, email: str) -> str:
    return str(render.user(call.access.world, email, False)["permissionId"])


def _permit(call: Call, file: File, permissions: dict[str, str]) -> None:
    changed = replace(file, permissions=permissions, version=file.version + 1)
    call.access.tree.put(changed)


def permissions(call: Call) -> Answer:
    file = call.access.change(call.ids["fileId"], in_drive="reader")
    roles = call.access.tree.roles(file)
    told = [render.permission(call.access.world, email, role) for email, role in roles.items()]
    return answer(call, "PermissionList", {"kind": "drive#permissionList", "permissions": told})


def drive(call: Call) -> Answer:
    """drives.get."""
    access = call.access
    root = access.tree.files.get(call.ids["driveId"])
    if root is None or root.drive != root.id or access.tree.role(access.user, root) is None:
        message = f"Shared drive not found: {call.ids['driveId']}"
        raise answers.Refused(404, "notFound", message, location="driveId", locationType="parameter")
    return answer(call, "Drive", _drive(call, root))


def drives(call: Call) -> Answer:
    """drives.list."""
    tree, user = call.access.tree, call.access.user
    roots = [file for file in tree.files.values() if file.id == file.drive and tree.role(user, file)]
    return answer(call, "DriveList", {"kind": "drive#driveList", "drives": [_drive(call, root) for root in roots]})


def _drive(call: Call, root: File) -> dict[str, Any]:
    role = call.access.tree.role(call.access.user, root)
    can = {"canAddChildren": at_least(role, "writer"), "canTrashChildren": at_least(role, "fileOrganizer")}
    told = {"kind": "drive#drive", "id": root.id, "name": root.name, "createdTime": render.moment(root.created)}
    return told | {"hidden": False, "capabilities": can | {"canDeleteChildren": at_least(role, "organizer")}}


ROUTES: dict[str, Callable[[Call], Answer]] = {
    "v3.files.generateIds": generate_ids,
    "v3.files.create": create,
    "v3.files.get": get,
    "v3.files.update": update,
    "v3.files.delete": delete,
    "v3.files.list": list_files,
    "v3.about.get": about,
    "v3.permissions.create": share,
    "v3.permissions.delete": unshare,
    "v3.permissions.list": permissions,
    "v3.drives.get": drive,
    "v3.drives.list": drives,
}
