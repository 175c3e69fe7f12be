"""Replaces a file atomically: readers see the whole old file or the whole new one.

The file is not made durable; one that must survive a power cut is also synced (relay/core/checkpoint/local.py).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write the file. Leaves no temporary file, also on failure. Raises OSError, also for a device, which as root it
    would replace."""
    if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113 - Path's raise for a name too long
        raise FileExistsError(errno.EEXIST, "It is not a file", str(path))
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
