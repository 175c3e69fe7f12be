"""The routes of the fake Dropbox, on the argument, result and error types of the published definitions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from dropbox import check, common, files, users
from dropbox.content_hash import content_hash

from tests.storage.dropbox.fake.tree import File, Folder, Node, Refused, metadata
from tests.storage.dropbox.fake.world import Account, Place, World, resolve

LARGEST_BODY = 150 << 20
_cursor_number = count(1)
_shuffle = Random(0)


@dataclass(frozen=True)
class Call:
    """One request that got through."""

    world: World
    account: Account
    root: common.PathRoot | None
    arg: Any
    body: bytes
    now: float

    def place(self, path: str) -> Place:
        return resolve(self.world, self.account, self.root, path)


@dataclass
class Cursor:
    """How far a listing has been told."""

    place: Place
    recursive: bool
    limit: int
    pending: list[files.Metadata]
    at: int
    """Changes of the namespace's history already told."""


def upload(call: Call) -> files.FileMetadata:
    """files/upload."""
    _check_body(call, files.UploadError)
    try:
        saved = _write(call, call.arg, call.body)
    except Refused as refused:
        raise Refused(files.UploadError.path(files.UploadWriteFailed(refused.error, "unused"))) from None
    call.account.received += len(call.body)
    return saved


def upload_start(call: Call) -> files.UploadSessionStartResult:
    """files/upload_session/start."""
    _check_body(call, files.UploadSessionStartError)
    session = call.world.uploads.start(call.account.name, call.arg, call.body, call.now)
    return files.UploadSessionStartResult(session.id)


def upload_append(call: Call) -> None:
    """files/upload_session/append_v2."""
    _check_body(call, files.UploadSessionAppendError)
    call.world.uploads.append(call.account.name, call.arg, call.body, call.now)
    call.account.received += len(call.body)


def upload_finish(call: Call) -> files.FileMetadata:
    """files/upload_session/finish: a refused commit leaves the session, to be committed again."""
    _check_body(call, files.UploadSessionFinishError)
    session = call.world.uploads.finish(call.account.name, call.arg, call.body, call.now)
    try:
        saved = _write(call, call.arg.commit, session.data())
    except Refused as refused:
        raise Refused(files.UploadSessionFinishError.path(refused.error)) from None
    session.committed = True
    session.pieces.clear()
    return saved


def download(call: Call) -> tuple[files.FileMetadata, bytes]:
    """files/download."""
    try:
        place, node = _find(call, call.arg.path)
    except Refused as refused:
        raise Refused(files.DownloadError.path(refused.error)) from None
    if isinstance(node, Folder):
        raise Refused(files.DownloadError.path(files.LookupError.not_file))
    return metadata(node, place.shown(place.path)), node.data


def get_metadata(call: Call) -> files.Metadata:
    """files/get_metadata."""
    try:
        place = call.place(call.arg.path)
        if place.path == "" and place.root:
            return _mount(place)
        node = place.namespace.lookup(place.path)
    except Refused as refused:
        raise Refused(files.GetMetadataError.path(refused.error)) from None
    return metadata(node, place.shown(place.path))


def delete(call: Call) -> files.DeleteResult:
    """files/delete_v2: a folder goes with everything in it, unless a parent_rev asks for one revision of a file."""
    try:
        place, node = _find(call, call.arg.path)
    except Refused as refused:
        raise Refused(files.DeleteError.path_lookup(refused.error)) from None
    if call.arg.parent_rev and not (isinstance(node, File) and node.rev == call.arg.parent_rev):
        conflict = files.WriteError.conflict(files.WriteConflictError.file)
        raise Refused(files.DeleteError.path_write(conflict))
    place.namespace.delete(place.path, call.now)
    return files.DeleteResult(metadata(node, place.shown(place.path)))


def list_folder(call: Call) -> files.ListFolderResult:
    """files/list_folder, in no order; a recursive listing tells the folder itself too."""
    arg, lag = call.arg, call.account.list_lag
    try:
        place = call.place(arg.path)
        found = place.namespace.below(place.path, arg.recursive, call.now - lag if lag else None)
    except Refused as refused:
        raise Refused(files.ListFolderError.path(refused.error)) from None
    if arg.recursive and place.path:
        found[place.path.lower()] = place.namespace.lookup(place.path)
    entries = [metadata(node, place.shown(_display(place, path))) for path, node in found.items()]
    _shuffle.shuffle(entries)
    return _page(call, Cursor(place, arg.recursive, arg.limit or 500, entries, len(place.namespace.history)))


def list_folder_continue(call: Call) -> files.ListFolderResult:
    """files/list_folder/continue: what is left, then what has changed since."""
    cursor = call.world.cursors.get(call.arg.cursor)
    if cursor is None:
        raise Refused(files.ListFolderContinueError.reset)
    if not cursor.pending:
        history = cursor.place.namespace.history
        changes = history[cursor.at :]
        cursor.pending, cursor.at = [_change(cursor.place, path, node) for _, path, node in changes], len(history)
    return _page(call, cursor)


def longpoll(call: Call) -> files.ListFolderLongpollResult:
    """files/list_folder/longpoll: answers when something has changed, or after the timeout."""
    cursor = call.world.cursors.get(call.arg.cursor)
    if cursor is None:
        raise Refused(files.ListFolderLongpollError.reset)
    end = time.monotonic() + call.arg.timeout
    while len(cursor.place.namespace.history) <= cursor.at and time.monotonic() < end:
        time.sleep(0.02)
    return files.ListFolderLongpollResult(changes=len(cursor.place.namespace.history) > cursor.at)


def space_usage(call: Call) -> users.SpaceUsage:
    """users/get_space_usage."""
    allocated = users.IndividualSpaceAllocation(call.account.quota)
    return users.SpaceUsage(call.world.used(call.account), users.SpaceAllocation.individual(allocated))


def check_user(call: Call) -> check.EchoResult:
    """check/user."""
    return check.EchoResult(call.arg.query)


Route = tuple[Any, Callable[[Call], Any], str]
"""The SDK's definition, what answers, and the scope it needs."""

ROUTES: dict[str, Route] = {
    "files/upload": (files.upload, upload, "files.content.write"),
    "files/upload_session/start": (files.upload_session_start, upload_start, "files.content.write"),
    "files/upload_session/append_v2": (files.upload_session_append_v2, upload_append, "files.content.write"),
    "files/upload_session/finish": (files.upload_session_finish, upload_finish, "files.content.write"),
    "files/download": (files.download, download, "files.content.read"),
    "files/get_metadata": (files.get_metadata, get_metadata, "files.metadata.read"),
    "files/delete_v2": (files.delete_v2, delete, "files.content.write"),
    "files/list_folder": (files.list_folder, list_folder, "files.metadata.read"),
    "files/list_folder/continue": (files.list_folder_continue, list_folder_continue, "files.metadata.read"),
    "files/list_folder/longpoll": (files.list_folder_longpoll, longpoll, ""),
    "users/get_space_usage": (users.get_space_usage, space_usage, "account_info.read"),
    "check/user": (check.user, check_user, "account_info.read"),
}


def _find(call: Call, path: str) -> tuple[Place, Node]:
    place = call.place(path)
    return place, place.namespace.lookup(place.path)


def _mount(place: Place) -> files.FolderMetadata:
    """A shared folder where somebody has mounted it."""
    id_, name = place.namespace.id, str(place.root).rpartition("/")[2]
    sharing = files.FolderSharingInfo(read_only=False, shared_folder_id=id_)
    return files.FolderMetadata(
        name=name, id=f"id:mount{id_}", path_lower=place.root, path_display=place.root, shared_folder_id=id_,
        sharing_info=sharing,
    )  # fmt: skip


def _write(call: Call, commit: files.CommitInfo, data: bytes) -> files.FileMetadata:
    place = call.place(commit.path)
    there = place.namespace.nodes.get(place.path.lower())
    more = len(data) - (len(there.data) if isinstance(there, File) else 0)
    if call.world.used(call.account) + more > call.account.quota:
        raise Refused(files.WriteError.insufficient_space)
    node = place.namespace.write(place.path, data, commit.mode, commit.strict_conflict, commit.autorename, call.now)
    return metadata(node, place.shown(place.path))


def _check_body(call: Call, errors: Any) -> None:
    """The limits and the hash that every upload is checked by."""
    if len(call.body) > LARGEST_BODY:
        raise Refused(errors.payload_too_large)
    if call.arg.content_hash is not None and call.arg.content_hash != content_hash(call.body):
        raise Refused(errors.content_hash_mismatch)


def _page(call: Call, cursor: Cursor) -> files.ListFolderResult:
    page, cursor.pending = cursor.pending[: cursor.limit], cursor.pending[cursor.limit :]
    name = f"cursor-{next(_cursor_number)}"
    call.world.cursors[name] = cursor
    return files.ListFolderResult(entries=page, cursor=name, has_more=bool(cursor.pending))


def _change(place: Place, path: str, node: Node | None) -> files.Metadata:
    if node is not None:
        return metadata(node, place.shown(path))
    shown = place.shown(path)
    return files.DeletedMetadata(name=path.rpartition("/")[2], path_lower=shown, path_display=shown)


def _display(place: Place, lower: str) -> str:
    """A path with the case its last part was written in."""
    node = place.namespace.nodes.get(lower)
    return lower if node is None else f"{lower.rpartition('/')[0]}/{node.name}"
