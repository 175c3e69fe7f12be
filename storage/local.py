"""A store in a folder of a POSIX disk or share; does not read the bytes."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat as modes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from storage import files
from storage.contract import (
    BadAddress,
    Denied,
    Exists,
    Missing,
    Ref,
    Stat,
    StoreError,
    TooLong,
    Unavailable,
    check_name,
    check_prefix,
    check_ref,
)
from storage.mounts import PROC_MOUNTS, refuse_cloud_mount
from storage.oserrors import os_errors

_DAY = 86400.0
_RACES = 50
"""How often a write starts again because another client pruned the empty folder under it."""
_NOTHING_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

Publish = Callable[[int, str, str], None]
"""(folder, temporary, leaf): give the finished temporary file its name."""


class LocalStore:
    """Objects are files. A write is a temporary file, fsync, then link (if absent) or rename (replace), then fsync.

    No link inside the folder is followed; the folder itself may be reached through one. The first write creates it. A
    folder that disappeared, or was replaced by another, is Unavailable and never re-created.
    """

    unique_names = True

    def __init__(self, root: str | Path, *, read_only: bool = False, mounts: Path = PROC_MOUNTS) -> None:
        self.root = Path(root).absolute()
        self.address = self.root.as_uri()
        self.read_only = read_only
        self.clock_is_local = False
        self._inode: int | None = None
        self._swept: set[str] = set()
        self._synced: set[str] = set()
        refuse_cloud_mount(self.root, mounts)

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self._write(name, data, files.replace)

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self._write(name, data, self._link)

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        return self._write(name, data, self._link)

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        with self._reading(ref) as file:
            size = os.fstat(file).st_size
            if limit is not None and size > limit:
                raise TooLong(f"{self.root / ref} has {size} bytes, more than the {limit} allowed here.")
            return _whole(files.read_at(file, 0, size), size, self.root / ref)

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise ValueError(f"negative range {start}+{length}")
        with self._reading(ref) as file:
            there = max(0, os.fstat(file).st_size - start)
            return _whole(files.read_at(file, start, length), min(length, there), self.root / ref)

    def stat(self, ref: Ref) -> Stat:
        with self._reading(ref) as file:
            found = os.fstat(file)
            return Stat(ref, str(ref), found.st_size, found.st_mtime)

    def delete(self, ref: Ref) -> None:
        name = check_ref(ref, self.address)
        self._check_writable(name)
        parent, _, leaf = name.rpartition("/")
        with os_errors(self.root / name, reading=False), suppress(*_NOTHING_THERE), self._folder(parent) as folder:
            files.check_regular(folder, leaf)
            os.unlink(leaf, dir_fd=folder)
            self._sweep_once(parent, folder)
        self._prune(parent)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        check_prefix(prefix)
        return self._walk(prefix.rpartition("/")[0], prefix, after or "")

    def now(self) -> float:
        """The mtime of a probe written now; this machine's clock (`clock_is_local`) if writing is not allowed."""
        try:
            self._check_writable("a clock probe")
            with os_errors(self.root, reading=True), self._folder("") as folder:
                probed = files.disk_clock(folder)
        except (Denied, Missing):  # missing: an empty store has no time to compare with
            self.clock_is_local = True
            return time.time()
        self.clock_is_local = False
        return probed

    def ref(self, name: str) -> Ref:
        return Ref(check_name(name))

    def quota(self) -> tuple[int, int]:
        """Bytes used and bytes of the disk that holds the folder, or will; space reserved for root counts as used."""
        there = next(folder for folder in (self.root, *self.root.parents) if folder.is_dir())
        with os_errors(there, reading=True):
            found = shutil.disk_usage(there)
        return found.total - found.free, found.total

    def _write(self, name: str, data: bytes | Path, publish: Publish) -> Ref:
        """Copy the data to a temporary file next to its name, make it durable, publish it, make that durable."""
        check_name(name)
        self._check_writable(name)
        parent, _, leaf = name.rpartition("/")
        with _source(data) as source, os_errors(self.root / name, reading=False):
            for _ in range(_RACES):
                source.seek(0)
                with suppress(FileNotFoundError), self._folder(parent, create=True) as folder:
                    self._sweep_once(parent, folder)
                    with files.temporary(folder, source) as temporary:
                        publish(folder, temporary, leaf)
                    files.sync(folder)
                    return Ref(name)
        raise Unavailable(f"cannot write {self.root / name}: its folder keeps disappearing. It is worth trying again.")

    def _link(self, folder: int, temporary: str, leaf: str) -> None:
        try:
            files.link(folder, temporary, leaf)
        except FileExistsError as error:
            raise Exists(f"{self.root}: {leaf} exists already.") from error
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            raise BadAddress(
                f"the disk of {self.root} has no hard links ({error.strerror}), so two sessions could not be kept from "
                "overwriting each other. Use a folder on a Linux or macOS disk or an NFS share (not FAT or exFAT)."
            ) from error

    @contextmanager
    def _reading(self, ref: Ref) -> Iterator[int]:
        """A descriptor of the object's file."""
        name = check_ref(ref, self.address)
        parent, _, leaf = name.rpartition("/")
        with os_errors(self.root / name, reading=True), self._folder(parent) as folder:
            file = files.open_file(folder, leaf)
            try:
                yield file
            finally:
                os.close(file)

    @contextmanager
    def _folder(self, path: str, *, create: bool = False) -> Iterator[int]:
        """A descriptor of a folder of the store ('' is its root), opened part by part without following links."""
        folder = self._open_root(create)
        try:
            parts = path.split("/") if path else []
            for depth, part in enumerate(parts, 1):
                inner = self._create(folder, part, "/".join(parts[:depth])) if create else files.enter(folder, part)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _create(self, folder: int, part: str, path: str) -> int:
        """Enter a folder, creating it if needed; the first time, make it durable too."""
        try:
            inner = files.enter(folder, part)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            self._synced.discard(path)
            inner = files.enter(folder, part)
        if path not in self._synced:
            files.sync(folder)
            self._synced.add(path)
        return inner

    def _open_root(self, create: bool) -> int:
        """A descriptor of the root, which must stay the folder that this client saw first."""
        if self._inode is None:
            self._refuse_dangling()
            if create:
                files.make_root(self.root)
        try:
            folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if self._inode is None:
                raise
            raise Unavailable(f"the store folder {self.root} has disappeared. Is its disk still mounted?") from None
        except NotADirectoryError:
            raise BadAddress(f"{self.root} is not a folder. Give the path of a folder, or of one to be made.") from None
        inode = os.fstat(folder).st_ino
        if self._inode not in (None, inode):
            os.close(folder)
            raise Unavailable(f"{self.root} is another folder now. Is its disk still mounted?")
        self._inode = inode
        return folder

    def _refuse_dangling(self) -> None:
        """A dangling link means a missing disk or a wrong name: no new store is created next to it."""
        for path in (self.root, *self.root.parents):
            if path.is_symlink() and not path.exists():
                raise Unavailable(
                    f"{path} is a link to {path.readlink()}, which is missing. Is its disk mounted? Otherwise make "
                    "that folder, or correct the link."
                )

    def _sweep_once(self, path: str, folder: int) -> None:
        """On this client's first change of a folder, remove files of writers that died over a day ago."""
        if path not in self._swept:
            self._swept.add(path)
            files.sweep(folder, older_than=_DAY)

    def _prune(self, path: str) -> None:
        """Remove empty folders; a client that is writing into one creates it again."""
        with suppress(OSError, StoreError):
            while path:
                path, _, leaf = path.rpartition("/")
                with self._folder(path) as folder:
                    os.rmdir(leaf, dir_fd=folder)

    def _walk(self, path: str, prefix: str, after: str) -> Iterator[Stat]:
        """Objects below a folder, sorted by whole name."""
        for name, found in self._children(path):
            if modes.S_ISDIR(found.st_mode):
                inside = f"{name}/"
                if _overlap(inside, prefix) and (inside > after or after.startswith(inside)):
                    yield from self._walk(name, prefix, after)
            elif name.startswith(prefix) and name > after:
                yield Stat(Ref(name), name, found.st_size, found.st_mtime)

    def _children(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        """Regular files and folders with valid names, in the order of folder names that end in '/'."""
        found: dict[str, os.stat_result] = {}
        with suppress(Missing), os_errors(self.root / path, reading=True), self._folder(path) as folder:
            for leaf in files.names(folder):
                with suppress(FileNotFoundError, ValueError):
                    name = check_name(f"{path}/{leaf}" if path else leaf)
                    found[name] = os.stat(leaf, dir_fd=folder, follow_symlinks=False)
        kept = {n: s for n, s in found.items() if modes.S_ISDIR(s.st_mode) or modes.S_ISREG(s.st_mode)}
        return iter(sorted(kept.items(), key=lambda item: item[0] + "/" * modes.S_ISDIR(item[1].st_mode)))

    def _check_writable(self, what: str) -> None:
        if self.read_only:
            raise Denied(f"{self.address} was opened for reading only; refused to write {what}.")


@contextmanager
def _source(data: bytes | Path) -> Iterator[BinaryIO]:
    """The data as an open file; StoreError if a file to store cannot be opened."""
    if isinstance(data, bytes):
        yield io.BytesIO(data)
        return
    try:
        file = data.open("rb")
    except OSError as error:
        raise StoreError(f"cannot read {data}, which was to be stored: {error.strerror}.") from error
    with file:
        yield file


def _whole(data: bytes, size: int, path: Path) -> bytes:
    """The data, if it has the size that the disk reports. Raises Unavailable: a share can silently return less."""
    if len(data) < size:
        raise Unavailable(f"{path}: {len(data)} bytes arrived of {size}. Is its disk still mounted?")
    return data


def _overlap(folder: str, prefix: str) -> bool:
    return folder.startswith(prefix) or prefix.startswith(folder)
