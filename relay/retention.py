"""Which checkpoints stay and which files may go (P8): pure functions over one view of the ledger; deletes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from relay.manifest import MANIFEST, Manifest
from relay.names import Names
from relay.state import MAX_RETAINED, Checkpoint, RunState
from storage.base import Stat

Key = tuple[int, int]
GRACE_S = 3600.0
"""Store time between `retire` and deletion: readers hold no lock."""
ROOM = MAX_RETAINED - 8


@dataclass(frozen=True)
class Keep:
    """Which commits stay."""

    last: int = 3
    every: int = 0
    """Also every checkpoint whose step is a multiple of this; 0 keeps none."""

    def __post_init__(self) -> None:
        if self.last < 2:
            raise ValueError("at least the last 2 checkpoints are kept")


def to_retire(state: RunState, keep: Keep) -> tuple[Key, ...]:
    """Retained checkpoints no rule keeps: not the head, the last K undamaged, every Nth, or the best.

    A damaged one counts for no rule; it stays as evidence until K undamaged ones lie beyond it. Where every Nth would
    be too many for one entry, N doubles; where K would be, it is as many as there is room for.
    """
    good = sorted(state.undamaged, key=lambda c: c.key)
    damaged = {c.key for c in state.retained if c.damaged}
    last = max(2, min(keep.last, ROOM - len(damaged)))
    always = {c.key for c in good[-last:]} | damaged
    always |= {state.head.key} if state.head else set()
    always |= {state.best} if state.best else set()
    kept = always | _every(good, keep.every, room=ROOM - len(always))
    stale = {c.key for c in state.retained if c.damaged and _beyond(good, c) >= last}
    return tuple(c.key for c in state.retained if c.key not in kept or (c.key in stale and c != state.head))


def _beyond(good: list[Checkpoint], damaged: Checkpoint) -> int:
    return sum(c.step > damaged.step for c in good)


def _every(good: list[Checkpoint], every: int, room: int) -> set[Key]:
    if every <= 0:
        return set()
    while True:
        kept = {c.key for c in good if c.step % every == 0}
        if len(kept) <= max(room, 1):
            return kept
        every *= 2


def deletable(
    state: RunState,
    names: Names,
    listed: Iterable[Stat],
    manifests: Mapping[Key, Manifest],
    now: float,
    *,
    short_of_space: bool = False,
) -> list[Stat]:
    """Files a view ending in `state` allows to delete, manifests after all else; what it allows stays allowed for ever.

    `listed` is any listing (advisory), `manifests` the verified manifests of retained checkpoints, `now` store time.
    A file may go if no retained checkpoint names it and (its checkpoint is retired, or its epoch is below the view's).
    Empty if the manifest of one undamaged retained checkpoint is missing.
    """
    if any(c.key not in manifests for c in state.undamaged):
        return []
    named = {entry.key for manifest in manifests.values() for entry in manifest.files}
    named |= {c.manifest for c in state.retained}
    retained = {c.key for c in state.retained}
    retired = {r.key: r.at for r in state.retired}
    found = []
    for stat in listed:
        place = names.parse_checkpoint(stat.name)
        if place is None or place[:2] in retained or stat.name in named:
            continue
        key = place[:2]
        if key not in retired and key[1] >= state.epoch:
            continue
        waited = now - max(retired.get(key, 0.0), 0.0 if key in retired else stat.modified)
        if waited >= GRACE_S or short_of_space:
            found.append(stat)
    return sorted(found, key=lambda stat: (stat.name.endswith("/" + MANIFEST), stat.name))
