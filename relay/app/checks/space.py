"""Checks free space on this machine and in the store, for `doctor` and for warnings of `run`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from relay.app.checks import checkup
from relay.app.checks import doctor as examine
from relay.app.messages.advice import command
from relay.app.messages.wording import counted, size
from relay.core.checkpoint.retention import ROOM, Keep
from relay.core.ledger.state import RunState
from relay.core.names import FRAGMENT
from relay.core.runs.opening import RunHandle, folder_of
from relay.core.settings.config import Resolved
from storage.base import Store, StoreError
from storage.capabilities import free

UNKNOWN_FREE = "the store does not tell how much is free"
DELETED = "the run was deleted"
UNKNOWN_GROWTH = "no session has committed yet"
ONLY_LEDGER = "it holds only the ledger, which grows slowly"
ENTRY = 12_000
"""Bytes of an entry of the ledger, about."""


def sessions_until_full(state: RunState, entries: int, free: int | None, keep: Keep) -> tuple[int | None, str]:
    """Sessions like those before, until `free` bytes are used up; None and why, if that is unknown.

    What a session leaves for good: its ledger entries and, of its checkpoints, every Nth (`keep.every`), of which
    retention keeps a bounded number. It also needs room for the checkpoints of its last hour, which may not
    be deleted yet (P8). `entries` is the length of the ledger.
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
    """Bytes of a checkpoint; the mean where some share tensors with others."""
    assert state.head is not None, "there are commits"
    return sum(c.bytes for c in state.retained) // len(state.retained) if state.bases else state.head.bytes


def _count(spare: float, ledger: float, kept: float, most_kept: float) -> int:
    """Sessions that fill `spare` bytes, each with `ledger` and, up to `most_kept` in all, `kept` bytes."""
    count = spare / (ledger + kept)
    return math.floor(count if count * kept <= most_kept else (spare - most_kept) / ledger)


LEAST = 100_000_000
"""Bytes that should be free while the size of a checkpoint is unknown."""
FEW = 10
"""`run` warns when fewer sessions than this fill the store."""


def of_disks(resolved: Resolved[Any], state: RunState | None) -> Iterator[examine.Finding]:
    """Free space on this machine and, if it is a folder, in the store."""
    settings, each = resolved.settings, state.whole_bytes(state.head) if state and state.head else 0
    sync = resolved.path(settings.sync_dir)
    yield from examine.disk(sync, max(LEAST, checkup.COPIES_HERE * each), f"{settings.sync_dir}/")
    yield from of_store(resolved, state)


def of_store(resolved: Resolved[Any], state: RunState | None) -> Iterator[examine.Finding]:
    """Free space in the store if it is a folder, which costs no request."""
    each = state.head.bytes if state and state.head else 0
    folder = folder_of(resolved.checkpoint_url.partition(FRAGMENT)[0])
    if folder is not None:
        yield from examine.disk(folder, max(LEAST, 2 * each), "the store")


def making_room(run: str, full: bool) -> str:
    """The fix for a store with little space. `full`: none is left, so even its clock cannot be read."""
    words = ("--full", "--dry-run") if full else ("--dry-run",)
    return (
        f"`{command('gc', run, *words)}` lists files that can be deleted, and deletes them without `--dry-run`; "
        f"`{command('runs list')}` shows the size of each run."
    )


def space_lines(found: Iterable[examine.Finding]) -> Iterator[str]:
    """A line for each disk that is nearly full."""
    return (f"SPACE: {one.text}. {one.advice}" for one in found if not one.ok)


def warnings(resolved: Resolved[Any], opened: RunHandle, store: Store) -> Iterator[str]:
    """A line for each disk or store that a few more sessions will fill; none if the store reports no free space."""
    yield from space_lines(of_disks(resolved, opened.view.state))
    with suppress(StoreError):
        left, keep = free(store), resolved.settings.checkpoint
        sessions, _ = sessions_until_full(
            opened.view.state, opened.view.seq + 1, left, Keep(keep.keep_last, keep.keep_every)
        )
        if left is not None and sessions is not None and sessions < FEW:
            room = (
                f"room for {counted(sessions, 'session')} like the past ones"
                if sessions
                else "no room for another session"
            )
            yield (f"SPACE: {size(left)} free in the store, {room}. {making_room(opened.names.run, full=False)}")
