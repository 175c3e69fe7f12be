"""Refuses a pipe or a device in place of a user's file before it is opened: reading it might never end."""

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


def regular_or_piped(path: Path) -> Path:
    """As `regular`, for a file that is read once: takes also a pipe that a shell opened for this process (`<(…)`)."""
    opened = Path(os.path.realpath(path)).parent == Path("/dev/fd").resolve()
    return path if opened else regular(path)
