"""Real limits of the kernel for a process of its own: long files refused, permissions obeyed, a disk of few bytes."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL_BYTES = 32_000
CAPABILITY_VERSION_3 = 0x20080522
OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
_LIMIT = threading.Lock()


def obey_permissions() -> None:
    """Root gives up the right to read and write any file (capset(2)); for all other users nothing changes."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    for place in range(3):  # effective, permitted, inheritable; these capabilities are in the first half
        data[place] &= ~OVERRIDES
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


@contextmanager
def full_while(path: str) -> Iterator[None]:
    """While the file exists, the kernel refuses to write long files, as a disk does that is full."""
    if not (path and Path(path).exists()):
        yield
        return
    with _LIMIT:  # one thread at a time: the limit is the whole process's
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_BYTES, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def mount_small(folder: Path, size: int) -> bool:
    """A disk of `size` bytes at the folder, until it is unmounted; False where this user may not mount."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    return os.getuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
