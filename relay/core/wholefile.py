"""Replaces a file at once: whoever reads it finds the old one or the new one, whole; knows nothing of what is in it.

It is not made durable: a file that must outlive a power cut is synced too (relay/core/checkpoint/outbox.py).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from relay.core.errors import BadConfig


def write_whole(path: Path, data: bytes) -> None:
    """Leaves nothing else beside it, also where that fails. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def hand_out(path: Path, data: bytes, otherwise: str) -> dict[str, Any]:
    """A file that a person asked for: its path, bytes and sha256, for a document.

    Raises BadConfig (78) where it cannot be written, with what to do `otherwise`.
    """
    try:
        write_whole(path, data)
    except OSError as error:
        raise BadConfig(f"{path} cannot be written ({error.strerror}). {otherwise}") from error
    return {"path": str(path), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
