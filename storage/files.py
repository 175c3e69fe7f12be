"""File operations below an open folder descriptor; none follows a link."""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import shutil
import stat as modes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

CHUNK = 8 << 20
_TEMPORARY = re.compile(r"\.[0-9]+-[0-9a-f]{16}\.tmp")
"""Begins with a dot, which no name does: a temporary file is never taken for an object."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def enter(folder: int, part: str) -> int:
    """A descriptor of the folder `part` inside `folder`; ELOOP for a link, ENOTDIR for any other file."""
    try:
        return os.open(part, _FOLDER, dir_fd=folder)
    except NotADirectoryError:
        if modes.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _is_link(part) from None
        raise


def open_file(folder: int, leaf: str) -> int:
    """A descriptor for reading the regular file `leaf`."""
    check_regular(folder, leaf)  # before opening: opening a pipe or a device can have effects
    return os.open(leaf, _FILE, dir_fd=folder)


def check_regular(folder: int, leaf: str) -> None:
    """ENOENT if it is missing, EISDIR for a folder, ELOOP for a link, EACCES for a pipe, socket or device."""
    mode = os.stat(leaf, dir_fd=folder, follow_symlinks=False).st_mode
    if modes.S_ISLNK(mode):
        raise _is_link(leaf)
    if modes.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), leaf)
    if not modes.S_ISREG(mode):
        raise PermissionError(errno.EACCES, "not a regular file", leaf)


def names(folder: int) -> list[str]:
    """Names in the folder, unordered."""
    return os.listdir(folder)


def read_at(file: int, start: int, length: int) -> bytes:
    """Up to `length` bytes from `start`; shorter only at the end of the file."""
    pieces: list[bytes] = []
    while length > 0 and (piece := os.pread(file, min(length, CHUNK), start)):
        pieces.append(piece)
        start += len(piece)
        length -= len(piece)
    return b"".join(pieces)


def share(file: int, like: os.stat_result, bits: int = 0o2777) -> None:
    """Give an open file or folder the permissions of the folder `like`, those of `bits`, and its group if that counts.

    Adds what this process's umask removed, and removes nothing. What the system refuses stays as it is: `narrowed`.
    """
    mode = shared_mode(like) & bits
    found = os.fstat(file)
    if found.st_gid != like.st_gid and mode >> 3 & ~mode & 0o7:  # the group may do more than others
        with suppress(OSError):  # this user is not in that group
            os.fchown(file, -1, like.st_gid)
    if missing := narrowed(os.fstat(file), mode):
        with suppress(OSError):  # a share may know no permissions
            os.fchmod(file, modes.S_IMODE(found.st_mode) | missing)


def shared_mode(like: os.stat_result) -> int:
    """The permission bits that a store's folder gives to what is in it. In a sticky one, nobody writes to the files of
    others."""
    return like.st_mode & (0o2755 if like.st_mode & modes.S_ISVTX else 0o2777)


def narrowed(found: os.stat_result, mode: int) -> int:
    """Permission bits of a store folder's mode that a file or folder in it lacks."""
    return mode & ~found.st_mode & (0o2777 if modes.S_ISDIR(found.st_mode) else 0o666)


@contextmanager
def temporary(folder: int, source: BinaryIO, like: os.stat_result | None = None) -> Iterator[str]:
    """A durable copy of `source` under a temporary name, removed at the end; as open to others as the folder `like`."""
    name = f".{os.getpid()}-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb") as file:
        try:
            if like is not None:
                share(file.fileno(), like)
            shutil.copyfileobj(source, file, CHUNK)
            file.flush()
            os.fsync(file.fileno())
            yield name
        finally:
            with suppress(OSError):  # renamed away, or left for the sweep
                os.unlink(name, dir_fd=folder)


def sweep(folder: int, older_than: float) -> None:
    """Remove temporary files unchanged for `older_than` seconds of the disk's clock: their writers are dead."""
    leftovers = [name for name in names(folder) if _TEMPORARY.fullmatch(name)]
    if not leftovers:
        return
    oldest = disk_clock(folder) - older_than
    for name in leftovers:
        with suppress(OSError):  # another client swept it
            if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < oldest:
                os.unlink(name, dir_fd=folder)


def disk_clock(folder: int) -> float:
    """The disk's time of a file written now, unix seconds."""
    with temporary(folder, io.BytesIO(b"?")) as probe:
        return os.stat(probe, dir_fd=folder, follow_symlinks=False).st_mtime


def sync(folder: int) -> None:
    """Make a folder's entries durable; network file systems that do this by themselves refuse with EINVAL."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def make_root(root: Path) -> None:
    """Make a folder and its parents durably; it may exist already, also as a link to a folder.

    In a folder that a group shares (setgid, writable for the group) the group may use it too.
    """
    if root.exists():
        return
    make_root(root.parent)
    above = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileExistsError):
            os.mkdir(root.name, dir_fd=above)
            like = os.fstat(above)
            if like.st_mode & modes.S_ISGID and like.st_mode & modes.S_IWGRP:
                made = enter(above, root.name)
                try:
                    share(made, like, 0o2070)
                finally:
                    os.close(made)
        sync(above)
    finally:
        os.close(above)


def replace(folder: int, temporary: str, leaf: str) -> None:
    """Give the temporary file its name, replacing only a regular file."""
    with suppress(FileNotFoundError):
        check_regular(folder, leaf)
    os.replace(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)


def link(folder: int, temporary: str, leaf: str) -> None:
    """Give the temporary file its name if that is free; FileExistsError if a regular file has it."""
    try:
        os.link(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        check_regular(folder, leaf)
        raise


def _is_link(part: str) -> OSError:
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP), part)
