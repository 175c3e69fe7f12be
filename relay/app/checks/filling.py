"""Estimates how many more sessions a store has room for, from the sizes of past sessions."""

from __future__ import annotations

import math

from relay.core.checkpoint.retention import ROOM, Keep
from relay.core.ledger.state import RunState

UNKNOWN_FREE = "the store does not report free space"
DELETED = "the run was deleted"
UNKNOWN_GROWTH = "no session has committed yet"
ONLY_LEDGER = "it holds only the ledger, which grows slowly"
ENTRY = 12_000
"""Approximate bytes of a ledger entry."""


def sessions_until_full(state: RunState, entries: int, free: int | None, keep: Keep) -> tuple[int | None, str]:
    """(sessions like the past ones until `free` bytes are used, ""), or (None, reason) if unknown.

    A session keeps its ledger entries and every Nth of its checkpoints (`keep.every`), of which retention keeps a
    bounded number. It also needs space for the checkpoints of its last hour, which may not be deleted yet (P8).
    `entries` is the length of the ledger.
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
    """Bytes of a checkpoint; the mean if some share files."""
    assert state.head is not None, "there are commits"
    return sum(c.bytes for c in state.retained) // len(state.retained) if state.bases else state.head.bytes


def _count(spare: float, ledger: float, kept: float, most_kept: float) -> int:
    """Sessions that fill `spare` bytes; each adds `ledger` bytes and `kept` bytes, the latter `most_kept` in all."""
    count = spare / (ledger + kept)
    return math.floor(count if count * kept <= most_kept else (spare - most_kept) / ledger)
