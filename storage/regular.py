"""Files that a user names, which may be links. A pipe or a device is refused before it is opened: reading it might
never end."""

from __future__ import annotations

import errno
import os
import stat as modes
from pathlib import Path


def regular(path: Path) -> Path:
    """The path of a file, a folder or the null device. Raises OSError for any other, and for none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            why = f"it is a link to {path.readlink()}, which does not exist"
            raise OSError(errno.EINVAL, why, str(path)) from None
        raise
    file = modes.S_ISREG(found.st_mode) or modes.S_ISDIR(found.st_mode)
    if not file and found.st_rdev != Path(os.devnull).stat().st_rdev:
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path


def is_there(path: Path) -> bool:
    """Whether it is a file or a link to one. Raises OSError for a link that leads to nothing, a pipe or a device."""
    return path.is_file() or (path.is_symlink() and regular(path).is_file())


def regular_or_piped(path: Path) -> Path:
    """As `regular`, for a file that is read once: takes also a pipe that a shell opened for this process (`<(…)`)."""
    opened = Path(os.path.realpath(path)).parent == Path("/dev/fd").resolve()
    return path if opened else regular(path)
