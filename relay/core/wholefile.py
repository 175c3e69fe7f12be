"""Replaces a file at once: whoever reads it finds the old one or the new one, whole; knows nothing of what is in it.

It is not made durable: a file that must outlive a power cut is synced too (relay/core/checkpoint/local.py).
"""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Leaves nothing else beside it, also where that fails. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
