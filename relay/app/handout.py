"""Writes a file that the user asked for, and describes it in JSON."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from relay.core.errors import BadConfig
from relay.core.wholefile import write_whole


def hand_out(path: Path, data: bytes, otherwise: str, parents: bool = False) -> dict[str, Any]:
    """Write `data`; returns path, bytes and sha256. Raises BadConfig (78) with the advice `otherwise` on failure.

    parents: make the folders above it.
    """
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise BadConfig(f"Cannot write {path} ({error.strerror}). {otherwise}") from error
    return {"path": str(path), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
