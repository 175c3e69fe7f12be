"""Requests about the files of one Drive folder, by id; keeps no state but the folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from storage.answers import moment_of
from storage.contract import BadAddress, Denied, Missing, Ref, Stat, Unavailable, check_name
from storage.drive import upload
from storage.drive.client import DriveClient
from storage.drive.errors import NotAllowed
from storage.drive.upload import FIELDS, TYPE
from storage.ranges import WHOLE, Asked, not_whole

GONE = "trmRelayDeleted"
"""Property of a file that went to the bin because we may not delete it: treated as deleted."""
_PAGE = 1000
_APPS = "application/vnd.google-apps."


class Files:
    """All methods raise StoreErrors. Shared drives work too (`supportsAllDrives`)."""

    def __init__(self, client: DriveClient, folder: str) -> None:
        self.client = client
        self.folder = folder
        self._folder_is_there = False

    def create(self, file: str, name: str, data: bytes) -> None:
        """A new file at an id. Raises Exists, UsedUp, NotOurs."""
        body = {"id": file, "name": name, "parents": [self.folder], "mimeType": TYPE}
        with self.finding():
            self._send(
                f"writing {name}",
                data,
                lambda drive: drive.files().create(
                    body=body, media_body=_bytes(data), fields=FIELDS, supportsAllDrives=True
                ),
            )

    def update(self, file: str, name: str, data: bytes) -> None:
        """Replace a file's content. Raises Missing."""
        self._send(
            f"writing {name}",
            data,
            lambda drive: drive.files().update(
                fileId=file, media_body=_bytes(data), fields=FIELDS, supportsAllDrives=True
            ),
        )

    def read(self, file: str) -> bytes:
        """The whole content."""
        found = self.client.fetch(f"reading {file}", lambda drive: _media(drive, file))
        if found.status != WHOLE:
            raise not_whole(f"{self.client.address}: {file}", found.status)
        return found.data

    def read_range(self, file: str, start: int, length: int) -> bytes:
        """Part of the content; b"" past its end."""

        def ranged(drive: Any) -> Any:
            request = _media(drive, file)
            request.headers["Range"] = f"bytes={start}-{start + length - 1}"
            return request

        found = self.client.fetch(f"reading {file}", ranged)
        asked = Asked(f"{self.client.address}: {file}", start, length, lambda: self.stat(file).size)
        return asked.checked(*found)

    def stat(self, file: str) -> Stat:
        """Raises Missing, also for a file that we put into the bin; Denied for a file without bytes."""
        found = upload.stat(self.client, file, file)
        with self.client.translating(f"looking at {file}"):
            _is_of(found, file)
            if found.get("trashed") and GONE in found.get("properties", ()):
                raise Missing(f"{self.client.address}: {file} was deleted.")
            if "size" not in found and found["mimeType"]:
                raise Denied(
                    f"{self.client.address}: {file} is a folder, a shortcut or a Google document, not a file of bytes."
                )
            return _stat(found)

    def delete(self, file: str) -> None:
        """Delete for ever, as the bin counts against the quota; if only the bin is allowed, move it there, marked."""
        body = {"trashed": True, "properties": {GONE: "1"}}
        with suppress(Missing):
            try:
                self.client.send_only(
                    f"deleting {file}", lambda drive: drive.files().delete(fileId=file, supportsAllDrives=True)
                )
            except NotAllowed:  # members of a shared drive often have no other right
                self._change(f"deleting {file}", file, body)

    def listed(self) -> Iterator[Stat]:
        """Files of bytes with valid names in the folder, unordered; files of others may be there too."""
        return self._listed(lambda found: True, trashed=False)

    def binned(self) -> Iterator[Stat]:
        """The same of files in the bin, except those that we put there."""
        return self._listed(lambda found: GONE not in found.get("properties", ()), trashed=True)

    def take_out(self, file: str) -> None:
        """Take a file out of the bin. Raises NotAllowed if another account owns it."""
        self._change(f"taking {file} out of the bin", file, {"trashed": False})

    def _listed(self, wanted: Callable[[dict[str, Any]], bool], trashed: bool) -> Iterator[Stat]:
        token = None
        while True:
            page = self.client.ask("listing", self._page(token, trashed))
            with self.client.translating("listing"):
                shown = [_stat(found) for found in page["files"] if _is_ours(found) and wanted(found)]
            yield from shown
            token = page.get("nextPageToken")
            if not token:
                return

    def tag(self, file: str) -> str:
        """The etag of a file (v2 alone has them), for `replace`."""
        answer = self.client.ask_old(
            f"looking at {file}", lambda drive: drive.files().get(fileId=file, fields="etag", supportsAllDrives=True)
        )
        with self.client.translating(f"looking at {file}"):
            return str(answer["etag"])

    def replace(self, file: str, data: bytes, tag: str) -> None:
        """Replace a file's content if its etag is unchanged. Raises Changed."""

        def conditional(drive: Any) -> Any:
            request = drive.files().update(fileId=file, media_body=_bytes(data), fields="id", supportsAllDrives=True)
            request.headers["If-Match"] = tag
            return request

        found = self.client.ask_old(f"writing {file}", conditional)
        with self.client.translating(f"writing {file}"):
            _is_of(found, file)

    @contextmanager
    def finding(self) -> Iterator[None]:
        """Raises Missing, or BadAddress if the whole folder is missing."""
        try:
            yield
        except Missing:
            if not self._folder_is_there:
                self.check_folder()
            raise

    def check_folder(self) -> None:
        """Raises BadAddress unless this token can see and use a folder with that id."""
        address, fields = self.client.address, "id,mimeType,trashed,shortcutDetails"
        try:
            found = self.client.ask(
                "looking at the folder",
                lambda drive: drive.files().get(fileId=self.folder, fields=fields, supportsAllDrives=True),
            )
        except Missing as error:
            raise BadAddress(
                f"{address}: this token sees no folder with that id. Check the address and that the token is of the "
                "OAuth client that made the store: a narrow token sees nothing else. This account must be a member of "
                "a shared folder or drive."
            ) from error
        with self.client.translating("looking at the folder"):
            _is_of(found, self.folder)
        _refuse(found, address)
        self._folder_is_there = True

    def _send(self, what: str, data: bytes, make: Any) -> None:
        """Send a request, and trust only the hash and size in the server's answer."""
        found = self.client.ask(what, make)
        if not upload.is_whole(found, len(data), hashlib.sha256(data).hexdigest()):
            raise Unavailable(f"{self.client.address}: {what}: the bytes were damaged on the way. Try again.")

    def _change(self, what: str, file: str, body: dict[str, Any]) -> None:
        """Change a file's metadata."""
        found = self.client.ask(
            what, lambda drive: drive.files().update(fileId=file, body=body, fields="id", supportsAllDrives=True)
        )
        with self.client.translating(what):
            _is_of(found, file)

    def _page(self, token: str | None, trashed: bool) -> Any:
        return lambda drive: drive.files().list(
            q=f"'{self.folder}' in parents and trashed = {str(trashed).lower()}",
            fields=f"nextPageToken,files({FIELDS})",
            pageSize=_PAGE,
            pageToken=token,
            supportsAllDrives=True,
            includeItemsFromAllDrives=True,
        )


def _refuse(found: dict[str, Any], address: str) -> None:
    """Raises BadAddress unless this is a folder outside the bin."""
    if found.get("mimeType") == f"{_APPS}shortcut":
        target = found.get("shortcutDetails", {}).get("targetId", "")
        raise BadAddress(f"{address} names a shortcut, not a folder. Use the id of its target: {target}.")
    if found.get("mimeType") != f"{_APPS}folder":
        raise BadAddress(f"{address} names a file, not a folder. Use the address that `init` printed.")
    if found.get("trashed"):
        raise BadAddress(f"{address} names a folder in the bin, which Drive deletes after 30 days. Restore it first.")


def _is_of(found: dict[str, Any], file: str) -> None:
    """Raises ValueError unless an answer is about this file."""
    if found["id"] != file:
        raise ValueError("an answer about another file")


def _is_ours(found: dict[str, Any]) -> bool:
    """Whether a listed file has bytes, a valid name and a possible time, which Drive lets people set."""
    if "size" not in found:
        return False
    with suppress(ValueError):
        return bool(check_name(found["name"]) and moment_of(datetime.fromisoformat(found["modifiedTime"])))
    return False


def _media(drive: Any, file: str) -> Any:
    return drive.files().get_media(fileId=file, supportsAllDrives=True)


def _bytes(data: bytes) -> Any:
    from googleapiclient.http import MediaInMemoryUpload

    return MediaInMemoryUpload(data, mimetype=TYPE, resumable=False)


def _stat(found: dict[str, Any]) -> Stat:
    modified = float(int(moment_of(datetime.fromisoformat(found["modifiedTime"]))))
    return Stat(Ref(found["id"]), found["name"], int(found["size"]), modified, found.get("sha256Checksum"))
