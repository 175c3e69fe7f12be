"""Files and folders of one namespace of the fake Dropbox: paths without case, write modes, history; knows no HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

from dropbox import files
from dropbox.content_hash import content_hash

_serial = count(1)


class Refused(Exception):
    """An error union of the published protocol."""

    def __init__(self, error: object) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True)
class File:
    name: str
    id: str
    rev: str
    data: bytes
    hash: str
    modified: float


@dataclass(frozen=True)
class Folder:
    name: str
    id: str


Node = File | Folder


@dataclass
class Namespace:
    """`nodes` by lower-case path; `history` holds every change, for cursors and for lists that lag behind."""

    id: str
    nodes: dict[str, Node] = field(default_factory=dict)
    history: list[tuple[float, str, Node | None]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes in files."""
        return sum(len(node.data) for node in self.nodes.values() if isinstance(node, File))

    def write(self, path: str, data: bytes, mode: files.WriteMode, strict: bool, rename: bool, now: float) -> File:
        """Save a file by the rules of WriteMode. Raises Refused(WriteError)."""
        self._make_parents(path, now)
        there = self.nodes.get(path.lower())
        if isinstance(there, File) and there.data == data and not strict:
            return there  # "if the target path refers to a file with identical contents, nothing gets written"
        if there is not None and not _may_replace(there, mode):
            if not rename:
                kind = files.WriteConflictError.file if isinstance(there, File) else files.WriteConflictError.folder
                raise Refused(files.WriteError.conflict(kind))
            path = self._free_name(path)
            there = None
        serial = next(_serial)
        old = there.id if isinstance(there, File) else f"id:{serial:022x}"
        new = File(path.rpartition("/")[2], old, f"{serial:015x}", data, content_hash(data), float(int(now)))
        self._set(path, new, now)
        return new

    def lookup(self, path: str) -> Node:
        """What is at a path. Raises Refused(LookupError)."""
        if path.lower() not in self.nodes:
            raise Refused(files.LookupError.not_found)
        return self.nodes[path.lower()]

    def path_of(self, id_: str) -> str | None:
        """The path of a file or folder by its id."""
        return next((path for path, node in self.nodes.items() if node.id == id_), None)

    def delete(self, path: str, now: float) -> Node:
        """Remove a file, or a folder with everything in it. Raises Refused(LookupError)."""
        node = self.lookup(path)
        for inside in [p for p in self.nodes if p == path.lower() or p.startswith(path.lower() + "/")]:
            self._set(inside, None, now)
        return node

    def below(self, folder: str, recursive: bool, until: float | None) -> dict[str, Node]:
        """What is in a folder, now or as it was `until` a time. Raises Refused(LookupError)."""
        nodes = self.nodes if until is None else self._as_of(until)
        if folder and folder.lower() not in nodes:
            raise Refused(files.LookupError.not_found)
        if folder and isinstance(nodes[folder.lower()], File):
            raise Refused(files.LookupError.not_folder)
        inside = {p: n for p, n in nodes.items() if p.startswith(folder.lower() + "/")}
        return inside if recursive else {p: n for p, n in inside.items() if "/" not in p[len(folder) + 1 :]}

    def _as_of(self, until: float) -> dict[str, Node]:
        nodes: dict[str, Node] = {}
        for when, path, node in self.history:
            if when > until:
                break
            if node is None:
                nodes.pop(path, None)
            else:
                nodes[path] = node
        return nodes

    def _make_parents(self, path: str, now: float) -> None:
        for parent in _parents(path):
            there = self.nodes.get(parent.lower())
            if isinstance(there, File):
                raise Refused(files.WriteError.conflict(files.WriteConflictError.file_ancestor))
            if there is None:
                self._set(parent, Folder(parent.rpartition("/")[2], f"id:{next(_serial):022x}"), now)

    def _free_name(self, path: str) -> str:
        stem, dot, ending = path.rpartition(".")
        stem, ending = (stem, dot + ending) if dot else (path, "")
        return next(name for n in count(1) if (name := f"{stem} ({n}){ending}").lower() not in self.nodes)

    def _set(self, path: str, node: Node | None, now: float) -> None:
        self.history.append((now, path.lower(), node))
        if node is None:
            del self.nodes[path.lower()]
        else:
            self.nodes[path.lower()] = node


def metadata(node: Node, shown: str | None) -> files.Metadata:
    """A node as the API tells it; `shown` is its path as the asker sees it, None if not mounted there."""
    lower = None if shown is None else shown.lower()
    if isinstance(node, Folder):
        return files.FolderMetadata(name=node.name, id=node.id, path_lower=lower, path_display=shown)
    modified = datetime.fromtimestamp(node.modified, UTC).replace(tzinfo=None)
    return files.FileMetadata(
        name=node.name,
        id=node.id,
        client_modified=modified,
        server_modified=modified,
        rev=node.rev,
        size=len(node.data),
        path_lower=lower,
        path_display=shown,
        is_downloadable=True,
        content_hash=node.hash,
    )


def _may_replace(there: Node, mode: files.WriteMode) -> bool:
    if isinstance(there, Folder):
        return False
    return mode.is_overwrite() or (mode.is_update() and mode.get_update() == there.rev)


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(2, len(parts)))
