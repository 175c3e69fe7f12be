"""Writes a file that a person asked for, and says in a document what it is."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from relay.core.errors import BadConfig
from relay.core.wholefile import write_whole


def hand_out(path: Path, data: bytes, otherwise: str) -> dict[str, Any]:
    """Its path, bytes and sha256. Raises BadConfig (78) where it cannot be written, with what to do `otherwise`."""
    try:
        write_whole(path, data)
    except OSError as error:
        raise BadConfig(f"{path} cannot be written ({error.strerror}). {otherwise}") from error
    return {"path": str(path), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
