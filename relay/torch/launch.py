"""Detects torchrun, and this process's place in it; does not need torch."""

from __future__ import annotations

import os


def launched() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def is_follower() -> bool:
    """Whether this process follows the first one, and has no session."""
    return launched() > 1 and os.environ.get("RANK", "0") != "0"
