"""Writes the page as one file beside what is there; knows nothing of what it shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relay.app.dashboard.page import whole
from relay.app.handout import hand_out


def export(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Replace the file at once: relay.dashboard-file/1. Raises BadConfig (78) where it cannot be written."""
    made = hand_out(path, whole(document).encode(), "Give --export another file.")
    return {"schema": "relay.dashboard-file/1", **made}
