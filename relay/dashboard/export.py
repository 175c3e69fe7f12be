"""Writes the page as one file beside what is there; knows nothing of what it shows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relay.dashboard.page import whole
from relay.errors import BadConfig


def export(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Replace the file at once: relay.dashboard-file/1. Raises BadConfig (78) where it cannot be written."""
    data = whole(document).encode()
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise BadConfig(f"{path} cannot be written ({error.strerror}). Give --export another file.") from error
    return {
        "schema": "relay.dashboard-file/1",
        "path": str(path),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
