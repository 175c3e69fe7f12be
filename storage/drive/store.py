"""The Store on a Google Drive folder, where a Ref is a file's id; does not read the bytes."""

from __future__ import annotations

import builtins
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from storage.contract import (
    Denied,
    Exists,
    Missing,
    Ref,
    Stat,
    Store,
    StoreError,
    TooLong,
    Unavailable,
    check_name,
    check_prefix,
)
from storage.drive import upload
from storage.drive.client import DriveClient
from storage.drive.directory import OWN, PREFIX, Directory, Table
from storage.drive.errors import UsedUp
from storage.drive.files import Files
from storage.drive.frame import Frame
from storage.drive.ids import Ids, Spot, Spots, There
from storage.drive.members import Account, join, membership
from storage.drive.place import ID, DriveAddress
from storage.drive.slots import DriveSlots
from storage.drive.upload import DriveUpload
from storage.retry import patiently
from storage.slots import Slots, slot_name
from storage.uploads import Source

_TRIES = 4


class DriveStore:
    """A name describes a file to people; only ids find it. Two `put`s of a name by one client are one file.

    `ref` and `put_if_absent` work for names that are only written by `put_if_absent`: the directory holds their ids.
    Every file is created at an id that was requested before, so a repeated request makes one file. A file in a
    person's bin can still be read, and counts as existing.
    """

    unique_names = False
    clock_is_local = False

    def __init__(self, place: DriveAddress, client: DriveClient, *, read_only: bool = False) -> None:
        self.address = place.address
        self.folder = place.folder
        self.read_only = read_only
        self.files = Files(client, place.folder)
        self.frames: dict[Ref, Frame] = {}
        """Frames of page heads of all logs, as far as read; they never change."""
        self._place = place
        self._client = client
        self._ids = Ids(client)
        self._account = Account(client)
        self._spots = Spots()
        self._in_use: set[Ref] = set()
        """Ids that Drive reported as used."""
        self._joined = False
        self.directory = Directory(self)

    def put(self, name: str, data: bytes | Path) -> Ref:
        """As base.Store. A file over 5 MB goes up in parts, and an interrupted upload goes on."""
        self._check_writable(check_name(name))
        with Source.of(data) as source, self._account.explaining_quota():
            if source.size <= upload.SMALL:
                return self._put(name, source.read(0, source.size))
            with self.files.finding():
                ref = DriveUpload(self._client, self._ids, name, self.folder, source).send()
            return self._spots.set(name, ref, There.YES).ref

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        """For the few names with a fixed id: each costs an entry in the store's directory."""
        self._check_writable(check_name(name))
        return self.create(self.directory.bind(name), name, data)

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        """As base.Store. A repeat after no answer goes to the same id, so that there is one file."""
        spot = self._spots.get(check_name(name))
        if spot and spot.there is not There.NO:
            self._spots.forget(name)
        return self.put(name, data)

    def create(self, ref: Ref, name: str, data: bytes) -> Ref:
        """As base.Creates. Raises UsedUp for the id of a deleted file, NotOurs for one not given to this account."""
        self._check_writable(check_name(name))
        with self._account.explaining_quota():
            try:
                self.files.create(self._id(ref), name, data)
            except Exists:
                self._in_use.add(ref)
                raise
        return ref

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        if limit is None:
            with self._knowing(ref) as file:
                return self.files.read(file)
        data = self.read_range(ref, 0, limit + 1)
        if len(data) > limit:
            size = self.stat(ref).size
            raise TooLong(f"{self.address}: {ref} has {size} bytes, more than the {limit} allowed here.")
        return data

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise ValueError(f"negative range {start}+{length}")
        if length == 0:
            self.stat(ref)
            return b""
        with self._knowing(ref) as file:
            return self.files.read_range(file, start, length)

    def stat(self, ref: Ref) -> Stat:
        with self._knowing(ref) as file:
            return self.files.stat(file)

    def delete(self, ref: Ref) -> None:
        file = self._id(ref)
        self._check_writable(ref)
        self._spots.deleted(ref)
        self.files.delete(file)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        """Of files with one name, the newest first; the directory's own files are not shown."""
        check_prefix(prefix)
        with self.files.finding():
            shown = [stat for stat in self.files.listed() if not stat.name.startswith(OWN)]
        found = [stat for stat in shown if stat.name.startswith(prefix) and stat.name > (after or "")]
        return iter(sorted(found, key=lambda stat: (stat.name, -stat.modified, stat.ref)))

    def now(self) -> float:
        """The Date header of a fresh reply, whole seconds; writes nothing."""
        self.files.check_folder()
        return self._client.heard()

    def ref(self, name: str) -> Ref:
        """The Ref of a name written by `put_if_absent`. Sends a request. Raises Missing."""
        return self.directory.find(name)

    def quota(self) -> tuple[int, int | None]:
        """Bytes used and bytes allowed of this account; None if Drive names no limit. Raises StoreError."""
        return self._account.quota()

    def binned(self) -> Iterator[Stat]:
        """As capabilities.HasBin. A request without an answer is repeated, as no wrapper does it."""
        return iter(_patient(lambda: builtins.list(self.files.binned())))

    def take_out(self, ref: Ref) -> None:
        """As capabilities.HasBin."""
        file = self._id(ref)
        self._check_writable(ref)
        _patient(lambda: self.files.take_out(file))

    def account(self) -> str:
        """A digest of this Drive account."""
        return self._account.digest()

    def credentials_source(self) -> str:
        """Source of the credentials, never their content."""
        return self._client.credentials.source

    def describe(self) -> builtins.list[str]:
        """How the logs go on, and the accounts; tests a new account first. Raises BadAddress (78)."""
        if not self.read_only:
            self.join()
        return membership(self).lines

    def fresh(self) -> DriveStore:
        """As wrapper.Reconnects. Keeps the ids known to be used: for these a 404 never means Missing."""
        other = DriveStore(self._place, self._client.fresh(), read_only=self.read_only)
        other._in_use |= self._in_use
        return other

    def slots(self, store: Store, prefix: str) -> Slots:
        """As slots.MakesSlots."""
        return DriveSlots(store, self, prefix, self._first_of(prefix), self._closing)

    def reserve(self, count: int) -> builtins.list[Ref]:
        """As base.Creates."""
        return [self._ids.one()] if count == 1 else self._ids.many(count)

    def claim(self, name: str, ref: Ref) -> None:
        """As base.Creates."""
        self._spots.claim(name, ref)

    def join(self) -> None:
        """Before this client's first entry: test and record whether this account can write. Raises BadAddress (78)."""
        if not self._joined:
            join(self)
            self._joined = True

    def tag(self, ref: Ref) -> str:
        """The etag of a file, for `replace`."""
        with self._knowing(ref) as file:
            return self.files.tag(file)

    def replace(self, ref: Ref, data: bytes, tag: str) -> None:
        """Replace a file's content if its etag is unchanged. Raises Changed otherwise."""
        self._check_writable(ref)
        with self._knowing(ref) as file, self._account.explaining_quota():
            self.files.replace(file, data, tag)

    def _closing(self) -> bool:
        """Whether the next entry ends the chain, by the directory's last answer."""
        return self.directory.way == "newest"

    def _first_of(self, prefix: str) -> Callable[[bool], Ref]:
        """Gives the Ref of a log's slot 0, existing or new."""
        if prefix == PREFIX:
            return lambda bind: Ref(self._place.first)
        name = slot_name(prefix, 0)
        return lambda bind: self.directory.bind(name) if bind else self.directory.find(name)

    def _put(self, name: str, data: bytes) -> Ref:
        """Replace the client's file of this name, or create it."""
        for _ in range(_TRIES):
            spot = self._spots.get(name) or self._spots.set(name, self._ids.one(), There.NO)
            try:
                (self.files.create if spot.there is There.NO else self.files.update)(spot.ref, name, data)
            except Exists:
                self._spots.set(name, spot.ref, There.YES)  # our own file, whose answer was lost
            except (Missing, UsedUp):
                self._lost(name, spot)
            else:
                return self._spots.set(name, spot.ref, There.YES).ref
        raise Unavailable(f"{self.address}: {name} was deleted after each write. Try again.")

    def _lost(self, name: str, spot: Spot) -> None:
        """No file is at the spot: not yet, or never again."""
        if spot.there is There.PERHAPS:
            self._spots.set(name, spot.ref, There.NO)
        else:
            self._spots.forget(name)

    @contextmanager
    def _knowing(self, ref: Ref) -> Iterator[str]:
        """The file's id. A 404 means Missing only if Drive has not reported the id as used."""
        try:
            with self.files.finding():
                yield self._id(ref)
        except Missing as error:
            if ref not in self._in_use:
                raise
            raise Denied(
                f"{self.address}: {ref} exists, but this token may not read it: another OAuth client or account made "
                "it. Use the token of the other participants."
            ) from error

    def _id(self, ref: Ref) -> str:
        if not ID.fullmatch(ref):
            raise Denied(f"{self.address}: refused an invalid reference: {ref[:100]!r}")
        return str(ref)

    def _check_writable(self, name: str) -> None:
        if self.read_only:
            raise Denied(f"{self.address} was opened for reading only; refused to change {name}.")


_patient = partial(patiently, sleep=time.sleep, jitter=random.random, attempts=5)
NAME = "trm-relay"
_FOLDER = "application/vnd.google-apps.folder"


def make(client: DriveClient, parent: str) -> DriveStore:
    """A store in a new folder inside `parent` ('root' is My Drive). Raises StoreError, and then removes the folder."""
    folder, first = Ids(client).many(2)
    body = {"id": folder, "name": NAME, "mimeType": _FOLDER, "parents": [parent]}

    def create(drive: Any) -> Any:
        return drive.files().create(body=body, fields="id", supportsAllDrives=True)

    store = DriveStore(DriveAddress(folder, first), client)
    try:
        with suppress(Exists):  # our own, whose reply was lost
            _patient(lambda: client.ask("making the folder", create))
        me, spare = store.account(), store.reserve(1)[0]
        store.directory.begin(Table(members={me: "began"}, spare=spare, by=me))
    except StoreError:
        with suppress(StoreError):  # its id was not published
            _patient(lambda: store.delete(folder))
        raise
    return store
