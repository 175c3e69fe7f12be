"""Files, folders, shortcuts and shared drives by id, and who may do what with them; knows no HTTP and no tokens."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from random import Random

FOLDER = "application/vnd.google-apps.folder"
SHORTCUT = "application/vnd.google-apps.shortcut"
ROLES = ("reader", "commenter", "writer", "fileOrganizer", "organizer", "owner")
_serial = count(1)
_letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class Content:
    """Bytes and their checksums, which are taken once."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def sums(self) -> dict[str, str]:
        """Hexadecimal, by the name of the algorithm."""
        return {name: hashlib.new(name, self.data).hexdigest() for name in ("md5", "sha1", "sha256")}


@dataclass(frozen=True)
class File:
    """One item. Changed by being replaced in the tree, so that lists can lag behind."""

    id: str
    name: str
    mime: str
    owner: str | None
    """The user whose quota it uses; None in a shared drive."""
    drive: str | None
    parents: tuple[str, ...]
    client: str
    """The OAuth client that made it."""
    maker: str
    """The user who made it; stays when the owner changes."""
    created: float
    modified: float
    version: int
    revision: str = ""
    content: Content | None = None
    target: str | None = None
    """What a shortcut points to."""
    trashed: bool = False
    permissions: Mapping[str, str] = field(default_factory=dict)
    """Role by user, given on this very item."""
    properties: Mapping[str, str] = field(default_factory=dict)
    app_properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By OAuth client."""
    description: str = ""
    starred: bool = False

    @property
    def size(self) -> int:
        return len(self.content.data) if self.content else 0


@dataclass(frozen=True)
class Reserved:
    """An id handed out by generateIds."""

    user: str
    space: str
    type: str


@dataclass
class Tree:
    """Everything stored. `history` holds every change, for lists that lag behind."""

    files: dict[str, File] = field(default_factory=dict)
    reserved: dict[str, Reserved] = field(default_factory=dict)
    burnt: set[str] = field(default_factory=set)
    """Ids of deleted files, which can never be used again."""
    history: list[tuple[float, str, File | None]] = field(default_factory=list)
    _chance: Random = field(default_factory=lambda: Random(7))

    def new_id(self, start: str = "1", length: int = 33) -> str:
        """An id that nobody has."""
        text = "".join(self._chance.choices(_letters, k=length - len(start) - 4))
        return f"{start}{text}{next(_serial):04x}"[:length]

    def put(self, file: File) -> File:
        """Add or replace."""
        self.files[file.id] = file
        self.history.append((time.monotonic(), file.id, file))
        return file

    def delete(self, file: File) -> None:
        """Remove for ever, and burn the id; those of its descendants that have the same owner go with it."""
        for inside in list(self.children(file.id)):
            if inside.owner == file.owner:
                self.delete(inside)
        del self.files[file.id]
        self.burnt.add(file.id)
        self.history.append((time.monotonic(), file.id, None))

    def children(self, folder: str) -> Iterator[File]:
        return (file for file in self.files.values() if folder in file.parents)

    def lineage(self, file: File) -> Iterator[File]:
        """A file and the folders it lies in, upwards."""
        yield file
        for parent in file.parents:
            if parent in self.files:
                yield from self.lineage(self.files[parent])

    def is_trashed(self, file: File) -> bool:
        """By itself, or with a folder above it."""
        return any(above.trashed for above in self.lineage(file))

    def role(self, user: str, file: File) -> str | None:
        """What a user is to a file: the most that is given on it or on a folder above, whose owner may edit what
        others put there. What lies in its owner's trash is nobody else's."""
        if file.owner != user and file.owner is not None and self.is_trashed(file):
            return None
        given = {above.permissions.get(user) for above in self.lineage(file)} - {"owner"}
        given.update("owner" if above is file else "writer" for above in self.lineage(file) if above.owner == user)
        return max((role for role in given if role), key=ROLES.index, default=None)

    def roles(self, file: File) -> dict[str, str]:
        """Every user who is something to a file."""
        users = {user for above in self.lineage(file) for user in above.permissions} | {file.owner or ""}
        return {user: role for user in sorted(users) if (role := self.role(user, file))}

    def as_of(self, lag: float, changes: int | None) -> dict[str, File]:
        """The files as they were so many seconds ago, and after no more than so many changes."""
        files: dict[str, File] = {}
        until = time.monotonic() - lag
        for when, id_, file in self.history[:changes]:
            if when > until:
                break
            if file is None:
                files.pop(id_, None)
            else:
                files[id_] = file
        return files


def at_least(role: str | None, least: str) -> bool:
    """Whether a role allows what another does."""
    return role is not None and ROLES.index(role) >= ROLES.index(least)
