"""A store in a folder of a POSIX disk or share; does not read the bytes."""

from __future__ import annotations

import builtins
import errno
import hashlib
import io
import os
import re
import shutil
import stat as modes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from storage import files
from storage.contract import (
    IDENTITY,
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
from storage.mounts import PROC_MOUNTS, mount_of, refuse_broken, refuse_cloud_mount
from storage.oserrors import group_of, os_errors, owner_of
from storage.synced import refuse_synced

_DAY = 86400.0
_RACES = 50
"""How often a write starts again because another client pruned the empty folder under it."""
_PROOF = 1000
"""Most bytes of the object by which a client knows its store again."""
_NOTHING_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

Publish = Callable[[int, str, str], None]
"""(folder, temporary, leaf): give the finished temporary file its name."""


class LocalStore:
    """Objects are files. A write is a temporary file, fsync, then link (if absent) or rename (replace), then fsync.

    No link inside the folder is followed; the folder itself may be reached through one. The first write creates it. A
    folder that disappeared, or was replaced by another, is Unavailable and never re-created. Files and folders are as
    open to others as the store's folder, whatever the umask is.
    """

    unique_names = True

    def __init__(self, root: str | Path, *, read_only: bool = False, mounts: Path = PROC_MOUNTS) -> None:
        self.root = Path(root).absolute()
        self.address = self.root.as_uri()
        self.read_only = read_only
        self.clock_is_local = False
        self._seen: os.stat_result | None = None
        """The folder as this client saw it last."""
        self._proof: tuple[str, bytes] | None = None
        """A small object of this store, its identity if it has one: the folder is known by it (see `_is_ours`)."""
        self._swept: set[str] = set()
        self._synced: set[str] = set()
        self._mounts = mounts
        refuse_cloud_mount(self.root, mounts)
        if not read_only:  # a run that is there can still be read, to take it elsewhere
            refuse_broken(self.root, mounts)
            refuse_synced(self.root)

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
            data = _whole(files.read_at(file, 0, size), size, self.root / ref)
        self._remember(str(ref), data)
        return data

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
        if self._proof and self._proof[0] == name:
            self._proof = None
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

    def untried(self) -> str | None:
        """As Meets: the kind of its file system, if nothing is known of its exclusive create between machines."""
        mount = mount_of(self.root, self._mounts)
        return mount.kind if mount and mount.system.verdict == "untried" else None

    def client(self) -> str:
        """As Meets: 16 hexadecimal digits for this mount on this machine, within which one kernel decides."""
        return hashlib.sha256(f"{_boot()} {self._looked_at().st_dev}".encode()).hexdigest()[:16]

    def describe(self) -> builtins.list[str]:
        """Lines for people: the file system, and who may use the folder. Raises StoreError."""
        found, mount = self._looked_at(), mount_of(self.root, self._mounts)
        lines = [f"file system {mount.kind}, {mount.system.verdict}: {mount.system.why}"] if mount else []
        mode = modes.S_IMODE(found.st_mode)
        return [*lines, f"{self.root} belongs to {owner_of(found)}, group {group_of(found)}, mode {mode:04o}"]

    def warnings(self) -> builtins.list[str]:
        """Lines for people before they write: whom this user's files would shut out. Raises StoreError."""
        closed = self._closed()
        return [closed] if closed else []

    def _closed(self) -> str:
        """Whether files written here stay closed to others that the folder lets in; '' if not, or if it is unknown."""
        try:
            self._check_writable("a probe of permissions")
            with os_errors(self.root, reading=True), self._folder("") as folder:
                like = os.fstat(folder)
                with files.temporary(folder, io.BytesIO(b"?"), like) as probe:
                    found = os.stat(probe, dir_fd=folder, follow_symlinks=False)
        except (Denied, Missing):
            return ""
        if not files.narrowed(found, files.shared_mode(like)):
            return ""
        return (
            f"files that {owner_of(found)} writes to {self.root} stay closed to others who may use that folder (mode "
            f"{modes.S_IMODE(like.st_mode):04o}, files {modes.S_IMODE(found.st_mode):04o}, umask {_umask()}), so every "
            "other session would end with an error. Set `umask 007` before each session."
        )

    def _looked_at(self) -> os.stat_result:
        with os_errors(self.root, reading=True), self._folder("") as folder:
            return os.fstat(folder)

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
                    with files.temporary(folder, source, self._seen) as temporary:
                        publish(folder, temporary, leaf)
                    files.sync(folder)
                    self._remember(name, data)
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
        with self._inside(self._open_root(create), path, create) as folder:
            yield folder

    @contextmanager
    def _inside(self, folder: int, path: str, create: bool = False) -> Iterator[int]:
        """The same from a descriptor of the root, which is closed."""
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
            made = False
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
                made = True
            self._synced.discard(path)
            inner = files.enter(folder, part)
            if made and self._seen:
                files.share(inner, self._seen)
        if path not in self._synced:
            files.sync(folder)
            self._synced.add(path)
        return inner

    def _open_root(self, create: bool) -> int:
        """A descriptor of the root, which must stay the folder that this client saw first."""
        new = self._seen is None  # another thread may make the folder meanwhile
        if new:
            self._refuse_dangling()
            if create:
                files.make_root(self.root)
        try:
            folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if new:
                raise
            raise Unavailable(f"the store folder {self.root} has disappeared. Is its disk still mounted?") from None
        except NotADirectoryError:
            raise BadAddress(f"{self.root} is not a folder. Give the path of a folder, or of one to be made.") from None
        found = os.fstat(folder)
        if self._seen is None:
            self._remember(IDENTITY, self._read_in(folder, IDENTITY))
        elif found.st_ino != self._seen.st_ino and not self._is_ours(folder):
            os.close(folder)
            raise Unavailable(f"{self.root} is another folder now. Is its disk still mounted?")
        self._seen = found
        return folder

    def _is_ours(self, folder: int) -> bool:
        """Whether a root with another inode number is the same store: it holds the object that this client knows.

        File systems such as sshfs give a folder a new number once the kernel has forgotten it.
        """
        return self._proof is not None and self._read_in(folder, self._proof[0]) == self._proof[1]

    def _remember(self, name: str, data: bytes | Path | None) -> None:
        """Keep a small object as the proof that a folder is this store; the store's identity is the best one."""
        better = name == IDENTITY or self._proof is None or self._proof[0] != IDENTITY
        if better and isinstance(data, bytes) and len(data) <= _PROOF:
            self._proof = (name, data)

    def _read_in(self, root: int, name: str) -> bytes | None:
        """A small object below a descriptor of a root; None if it is missing, longer, or unreadable."""
        parent, _, leaf = name.rpartition("/")
        with suppress(OSError), self._inside(os.dup(root), parent) as folder:
            file = files.open_file(folder, leaf)
            try:
                found = files.read_at(file, 0, _PROOF + 1)
            finally:
                os.close(file)
            return found if len(found) <= _PROOF else None
        return None

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


def _boot() -> str:
    """This machine since it started; '' if the system does not report it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _umask() -> str:
    """This process's umask, as the system reports it without changing it."""
    try:
        found = re.search(r"^Umask:\s*([0-7]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else "unknown"


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
