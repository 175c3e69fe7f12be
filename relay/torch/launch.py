"""Says whether torchrun started this process, and as which of how many; needs no torch."""

from __future__ import annotations

import os


def launched() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def is_follower() -> bool:
    """Whether this process does what the first one says, and has no session of its own."""
    return launched() > 1 and os.environ.get("RANK", "0") != "0"
