"""The Store on a Dropbox folder, where a name is a path; does not read the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from storage.answers import moment_of
from storage.contract import (
    BlockHash,
    Denied,
    Missing,
    QuotaExceeded,
    Ref,
    Stat,
    StoreError,
    TooLong,
    Unavailable,
    check_name,
    check_prefix,
    check_ref,
)
from storage.dropbox.client import DropboxClient
from storage.dropbox.place import DropboxAddress
from storage.dropbox.upload import BLOCK, SMALL, DropboxUpload, Mode, write_mode
from storage.ranges import BEHIND_THE_END, Asked
from storage.uploads import Source

_PAGE = 2000


class DropboxStore:
    """put_if_absent is an upload of mode `add`: other bytes at the path are a conflict, the same bytes are a success.

    So our own repeated request succeeds, and two writers must never send the same bytes (the log's nonce prevents it).
    Folders appear with their first object and stay: removing one could remove an object that is being written at that
    moment.
    """

    unique_names = True
    clock_is_local = False

    def __init__(self, place: DropboxAddress, client: DropboxClient, *, read_only: bool = False) -> None:
        self.address = place.address
        self.read_only = read_only
        self._place = place
        self._client = client

    def put(self, name: str, data: bytes | Path) -> Ref:
        """As base.Store. A file over 8 MiB goes up in parts, and an interrupted upload continues."""
        return self._put(name, data, "overwrite")

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        self._check_writable(name)
        path = self._place.path(check_name(name))
        with self._explaining_quota():
            self._send(f"writing {name}", path, data, "add")
        return Ref(name)

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        """As base.Store; the same bytes at the path are a success."""
        return self._put(name, data, "add")

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        """As base.Store; bytes that differ from Dropbox's hash of them raise Unavailable: damaged on the way."""
        from dropbox.content_hash import content_hash

        path = self._place.path(check_ref(ref, self.address))

        def download(sdk: Any) -> bytes:
            found, response = sdk.files_download(path)
            with response:
                if limit is not None and found.size > limit:
                    raise TooLong(f"{self.address}: {ref} has {found.size} bytes, more than the {limit} allowed here.")
                data = _body(response)
            if len(data) != found.size or content_hash(data) != found.content_hash:
                raise Unavailable(f"{self.address}: {ref} was damaged on the way. Try again.")
            return data

        return self._client.ask(f"reading {ref}", download)

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise ValueError(f"negative range {start}+{length}")
        if length == 0:
            self.stat(ref)
            return b""
        path = self._place.path(check_ref(ref, self.address))
        asked = Asked(f"{self.address}: {ref}", start, length, lambda: self.stat(ref).size)
        return self._client.ask(f"reading {ref}", lambda sdk: _read_range(sdk, path, asked))

    def stat(self, ref: Ref) -> Stat:
        found = self._metadata(ref)
        with self._client.translating(f"looking at {ref}"):
            return _stat(str(ref), found)

    def delete(self, ref: Ref) -> None:
        """Delete by the file's id, not by its path: a folder at the path would go with its content."""
        check_ref(ref, self.address)
        self._check_writable(ref)
        with suppress(Missing):
            found = self._metadata(ref).id
            self._client.ask(f"deleting {ref}", lambda sdk: sdk.files_delete_v2(found))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        check_prefix(prefix)
        return self._list(prefix, after or "")

    def now(self) -> float:
        """The Date header of a fresh reply, whole seconds; writes nothing."""
        with suppress(Missing):
            self._metadata(Ref("clock"))
        return self._client.heard()

    def ref(self, name: str) -> Ref:
        return Ref(check_name(name))

    def fresh(self) -> DropboxStore:
        """As wrapper.Reconnects."""
        return DropboxStore(self._place, self._client.fresh(), read_only=self.read_only)

    def block_of(self, size: int) -> int:
        """As digests.HashesBlocks."""
        return BLOCK

    def credentials_source(self) -> str:
        """The variables that the credentials come from, never their content."""
        return self._client.credentials.source

    def quota(self) -> tuple[int, int]:
        """Bytes used and bytes allocated of the account (of its team, if that shares). Raises StoreError."""
        usage = self._client.ask("asking for the free space", lambda sdk: sdk.users_get_space_usage())
        if usage.allocation.is_team():
            return usage.allocation.get_team().used, usage.allocation.get_team().allocated
        return usage.used, usage.allocation.get_individual().allocated

    def _put(self, name: str, data: bytes | Path, mode: Mode) -> Ref:
        self._check_writable(name)
        path = self._place.path(check_name(name))
        with Source.of(data) as source, self._explaining_quota():
            if source.size > SMALL:
                DropboxUpload(self._client, path, source, mode).send()
            else:
                self._send(f"writing {name}", path, source.read(0, source.size), mode)
        return Ref(name)

    def _send(self, what: str, path: str, data: bytes, mode: Mode) -> None:
        self._client.ask(what, lambda sdk: sdk.files_upload(data, path, mode=write_mode(mode), mute=True))

    def _metadata(self, ref: Ref) -> Any:
        """FileMetadata of an object. Raises Missing, also for a folder."""
        from dropbox.files import FileMetadata

        path = self._place.path(check_ref(ref, self.address))
        found = self._client.ask(f"looking at {ref}", lambda sdk: sdk.files_get_metadata(path))
        if not isinstance(found, FileMetadata):
            raise Missing(f"{self.address}: {ref} is a folder, not an object.")
        return found

    def _list(self, prefix: str, after: str) -> Iterator[Stat]:
        """All objects below the prefix's folder, sorted: Dropbox lists them unordered."""
        folder = prefix.rpartition("/")[0]
        with suppress(Missing):
            for name, found in sorted(self._below(folder).items()):
                if name.startswith(prefix) and name > after:
                    with self._client.translating("listing"):
                        stat = _stat(name, found)
                    yield stat

    def _below(self, folder: str) -> dict[str, Any]:
        """FileMetadata of the objects in a folder of the store, by name. Raises Missing if there is no such folder."""
        path, found = self._place.path(folder), {}
        base = self._shown(path)
        for entry in self._entries(path):
            inside = (entry.path_lower or "").removeprefix(f"{base}/")
            found[f"{folder}/{inside}" if folder else inside] = entry
        return {name: entry for name, entry in found.items() if _is_object(name, entry)}

    def _entries(self, path: str) -> Iterator[Any]:
        """Metadata of all entries below a folder; of two entries for one path the later one counts."""
        page = self._client.ask("listing", lambda sdk: sdk.files_list_folder(path, recursive=True, limit=_PAGE))
        yield from page.entries
        while page.has_more:
            page = self._client.ask("listing", partial(_continue, page.cursor))
            yield from page.entries

    def _shown(self, path: str) -> str:
        """A folder's path as listings spell it. Raises Missing if there is no such folder."""
        if not path:
            return ""
        found = self._client.ask("listing", lambda sdk: sdk.files_get_metadata(path))
        if found.path_lower is None:
            raise StoreError(
                f"{self.address}: this shared folder is not in your Dropbox. Add it there (Add to Dropbox)."
            )
        return str(found.path_lower)

    def _check_writable(self, name: str) -> None:
        if self.read_only:
            raise Denied(f"{self.address} was opened for reading only; refused to change {name}.")

    @contextmanager
    def _explaining_quota(self) -> Iterator[None]:
        """Adds to QuotaExceeded how full the Dropbox is, if that can be read."""
        try:
            yield
        except QuotaExceeded as error:
            try:
                used, allocated = self.quota()
            except StoreError:
                raise error from None
            raise QuotaExceeded(f"{error} {used / 1e9:.2f} of {allocated / 1e9:.2f} GB are used.") from error


def _continue(cursor: str, sdk: Any) -> Any:
    return sdk.files_list_folder_continue(cursor)


def _read_range(sdk: Any, path: str, asked: Asked) -> bytes:
    from dropbox.exceptions import HttpError

    try:
        wanted = {"Range": f"bytes={asked.start}-{asked.start + asked.length - 1}"}
        found, response = sdk.files_download(path, extra_headers=wanted)
    except HttpError as error:
        if error.status_code == BEHIND_THE_END:
            return asked.checked(BEHIND_THE_END, "", b"")
        raise
    with response:
        data, content_range = _body(response), response.headers.get("Content-Range", "")
    return replace(asked, size=lambda: found.size).checked(response.status_code, content_range, data)


def _body(response: Any) -> bytes:
    """The whole reply in one piece: `response.content` reads 10 KiB at a time and takes three times as long."""
    return b"".join(response.iter_content(None))


def _stat(name: str, found: Any) -> Stat:
    modified = moment_of(found.server_modified)
    blocks = BlockHash(BLOCK, found.content_hash) if found.content_hash else None
    return Stat(Ref(name), name, found.size, modified, block_hash=blocks)


def _is_object(name: str, entry: Any) -> bool:
    """Whether a listing's entry is a file with a valid name; files of others may be here too."""
    from dropbox.files import FileMetadata

    with suppress(ValueError):
        return isinstance(entry, FileMetadata) and bool(check_name(name))
    return False
