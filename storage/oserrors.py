"""Turns operating system errors into StoreErrors with advice."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat as modes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.contract import Denied, Missing, QuotaExceeded, StoreError, Unavailable

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}


@contextmanager
def os_errors(path: str | os.PathLike[str], *, reading: bool, here: bool = False) -> Iterator[None]:
    """Turns each OSError of the block into the StoreError for `path`. `here`: the path is not in a store."""
    try:
        yield
    except OSError as error:
        meant = translate(error, path, reading=reading)
        meant.here = here
        raise meant from error


def translate(error: OSError, path: str | os.PathLike[str], *, reading: bool) -> StoreError:
    """The StoreError for an OSError at `path`. An unknown error is Unavailable, never Missing."""
    code, reason = error.errno, error.strerror or str(error)
    doing = "read" if reading else "write"
    if code in _FULL:
        return QuotaExceeded(
            f"cannot write {path}: {reason}. Free some space (or raise the quota) there and run again."
        )
    if code in _REFUSED:
        return Denied(
            f"cannot {doing} {path}: {reason}{_owned(path)}. Give this user {doing} permission there, or use another "
            "folder."
        )
    if code == errno.ELOOP:
        return Denied(f"refused {path}: a link is in the way. Replace it by a real file or folder.")
    if code in _ABSENT and reading:
        return Missing(f"no {path}.")
    if code in (errno.ENOTDIR, errno.EISDIR):
        return Denied(f"cannot write {path}: a folder and an object have the same name. Use another name.")
    if code == errno.ENAMETOOLONG:
        return Denied(
            f"cannot {doing} {path}: the path is too long for this disk. Use a store folder with a shorter path."
        )
    return Unavailable(f"cannot {doing} {path}: {reason}. Check that the disk or share is connected, then try again.")


def owner_of(found: os.stat_result) -> str:
    """The name of a file's owner, or their number."""
    try:
        return pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return f"user {found.st_uid}"


def group_of(found: os.stat_result) -> str:
    """The name of a file's group, or its number."""
    try:
        return grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        return str(found.st_gid)


def _owned(path: str | os.PathLike[str]) -> str:
    """Who closed the way to `path`, if that is another user; '' if it is unknown."""
    for place in (Path(path), *Path(path).parents):
        try:
            found = place.lstat()
        except OSError:
            continue  # it is missing, or its folder hides it
        if found.st_uid == os.geteuid():
            return ""
        umask = "" if found.st_mode & 0o077 else ", so its owner's umask (077) kept others out"
        return f" ({place} belongs to {owner_of(found)}, mode {modes.S_IMODE(found.st_mode):04o}{umask})"
    return ""
