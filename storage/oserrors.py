"""Turns operating system errors into StoreErrors with advice."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

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
            f"cannot {doing} {path}: {reason}. Give this user {doing} permission there, or use another folder."
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
