"""After how many sessions a store would be full, by what the run's sessions left so far; pure arithmetic."""

from __future__ import annotations

import math

from relay.core.checkpoint.retention import ROOM, Keep
from relay.core.ledger.state import RunState

UNKNOWN_FREE = "the store does not tell how much is free"
DELETED = "the run was deleted"
UNKNOWN_GROWTH = "no session has committed yet"
ONLY_LEDGER = "it holds only the ledger, which grows slowly"
ENTRY = 12_000
"""Bytes of an entry of the ledger, about."""


def sessions_until_full(state: RunState, entries: int, free: int | None, keep: Keep) -> tuple[int | None, str]:
    """Sessions like those before, until `free` bytes are used up; None and why, if nobody can tell.

    What a session leaves for good: its ledger entries and, of its checkpoints, every Nth (`keep.every`), of which
    retention keeps a bounded number. Beside that it needs room for the checkpoints of its last hour, which nobody
    may delete yet (P8). `entries` is the length of the ledger.
    """
    if free is None:
        return None, UNKNOWN_FREE
    if state.deleted is not None:
        return None, DELETED
    commits = [link.commits for link in state.links if link.commits]
    if state.head is None or not commits:
        return None, UNKNOWN_GROWTH
    size = _size(state)
    spare = free - size * (max(0, keep.last + 1 - len(state.retained)) + max(commits))
    if spare < 0:
        return 0, ""
    ledger = max(1.0, ENTRY * entries / max(1, state.epoch))
    steps = max(0, sum(link.to_step - link.from_step for link in state.links)) / len(commits)
    return _count(spare, ledger, size * steps / keep.every if keep.every else 0.0, size * ROOM), ""


def _size(state: RunState) -> int:
    """Bytes of a checkpoint; the mean where some hold what others share."""
    assert state.head is not None, "there are commits"
    return sum(c.bytes for c in state.retained) // len(state.retained) if state.bases else state.head.bytes


def _count(spare: float, ledger: float, kept: float, most_kept: float) -> int:
    """Sessions that fill `spare` bytes, each with `ledger` and, up to `most_kept` in all, `kept` bytes."""
    count = spare / (ledger + kept)
    return math.floor(count if count * kept <= most_kept else (spare - most_kept) / ledger)
