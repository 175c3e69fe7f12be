"""Refuses a user's path that may never end, before it is opened: a pipe waits for a writer, a device gives for ever."""

from __future__ import annotations

import errno
import os
import stat as modes
from pathlib import Path


def regular(path: Path) -> Path:
    """The path of a file, a folder or the null device. Raises OSError for any other, and for none."""
    found = path.stat()
    file = modes.S_ISREG(found.st_mode) or modes.S_ISDIR(found.st_mode)
    if not file and found.st_rdev != Path(os.devnull).stat().st_rdev:
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path
