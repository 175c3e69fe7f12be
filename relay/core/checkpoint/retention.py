"""Decides which checkpoints to retire and which files may be deleted (P8). Pure functions over one ledger state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from relay.core.checkpoint.manifest import Manifest
from relay.core.ledger.changes import Key
from relay.core.ledger.frozen import MAX_RETAINED
from relay.core.ledger.state import Checkpoint, Retired, RunState
from relay.core.names import MANIFEST, Names
from storage.base import Stat

GRACE_S = 3600.0
"""Store time between `retire` and deletion: readers hold no lock."""
ROOM = MAX_RETAINED - 8


@dataclass(frozen=True)
class Keep:
    """The run's settings for which checkpoints to keep."""

    last: int = 3
    every: int = 0
    """Keep also every checkpoint whose step is a multiple of this; 0: no others."""

    def __post_init__(self) -> None:
        if self.last < 2:
            raise ValueError("at least the last 2 checkpoints are kept")


def to_retire(state: RunState, keep: Keep) -> tuple[Key, ...]:
    """Keys of retained checkpoints that no rule keeps: not the head, the last K undamaged, every Nth, or the best.

    A damaged one counts for no rule; it stays as evidence until K undamaged ones lie beyond it. If every Nth are too
    many for one entry, N doubles; if K are, K falls to the room there is. The lender of a checkpoint that stays also
    stays.
    """
    good = sorted(state.undamaged, key=lambda c: c.key)
    damaged = {c.key for c in state.retained if c.damaged}
    last = max(2, min(keep.last, ROOM - len(damaged)))
    while len(always := _always(state, good[-last:])) > ROOM and last > 2:
        last -= 1
    kept = always | _every(state, good, keep.every, room=ROOM - len(always))
    stale = {c.key for c in state.retained if c.damaged and _beyond(good, c) >= last and c != state.head}
    going = {c.key for c in state.retained if c.key not in kept or c.key in stale}
    going -= {c.base for c in state.retained if c.base and c.key not in going} | {k.base for k in state.kept if k.base}
    return tuple(c.key for c in state.retained if c.key in going)


def _always(state: RunState, last: list[Checkpoint]) -> set[Key]:
    """The last ones, damaged ones, head and best, the newest that shares nothing with the head, and the lenders of all
    these."""
    keys = {c.key for c in last} | {c.key for c in state.retained if c.damaged}
    keys |= {state.head.key} if state.head else set()
    keys |= {state.best} if state.best else set()
    if state.head and state.head.base:
        keys |= set([c.key for c in state.undamaged if c.base != state.head.base][-1:])
    return _with_bases(state, keys)


def _with_bases(state: RunState, keys: set[Key]) -> set[Key]:
    return keys | {c.base for c in state.retained if c.base and c.key in keys}


def _beyond(good: list[Checkpoint], damaged: Checkpoint) -> int:
    return sum(c.step > damaged.step for c in good)


def _every(state: RunState, good: list[Checkpoint], every: int, room: int) -> set[Key]:
    if every <= 0:
        return set()
    while True:
        kept = _with_bases(state, {c.key for c in good if c.step % every == 0})
        if len(kept) <= max(room, 1):
            return kept
        every *= 2


Rule = Literal[
    "foreign",  # not a file of a checkpoint
    "passed over",  # an entry that was passed over may have committed it
    "newest",  # of the head
    "best",  # of the best checkpoint on validation
    "evidence",  # of a damaged checkpoint
    "lender",  # the retained checkpoint of `step` shares files with it
    "kept",  # the run's settings keep its checkpoint
    "named",  # the retained checkpoint of `step` names it
    "unverified",  # the manifest of `step` cannot be verified, so nothing may go
    "deleted run",
    "newest epoch",  # a commit of `epoch` may still land
    "unread epoch",  # the newest entries of `epoch` were passed over: they may have committed it
    "over",  # `epoch` left it, and is over
    "retired",
    "stuck",  # it could not be deleted
]


@dataclass(frozen=True)
class FileVerdict:
    """The decision for one listed file: whether it may be deleted, and by which rule."""

    stat: Stat
    goes: bool
    rule: Rule
    step: int = 0
    epoch: int = 0
    seconds: float = 0.0
    """For `over` and `retired`: how long ago the rule began to hold; for a file that stays, how long until it may go
    (infinite: the next entry decides)."""


def going(decided: Iterable[FileVerdict]) -> list[Stat]:
    """Files that may be deleted, in the order of deletion: manifests last."""
    found = (file.stat for file in decided if file.goes)
    return sorted(found, key=lambda stat: (stat.name.endswith("/" + MANIFEST), stat.name))


def decide_files(
    state: RunState,
    names: Names,
    listed: Iterable[Stat],
    manifests: Mapping[Key, Manifest],
    now: float,
    *,
    short_of_space: bool = False,
) -> list[FileVerdict]:
    """Decide for every listed file, in the order of the listing, whether `state` allows its deletion, and why.

    `listed` is any listing (advisory), `manifests` the verified manifests of retained checkpoints, `now` store time.
    A file may go if no retained checkpoint names it and its checkpoint is retired, or its epoch is below the state's.
    Once a state allows a deletion, every later one does. No file goes if the manifest of an undamaged retained
    checkpoint is missing.
    """
    named = {entry.key: key for key, manifest in manifests.items() for entry in manifest.files}
    named |= {c.manifest: c.key for c in state.retained}
    folders = {c.folder: c for c in state.retained}
    kept = {one.folder for one in state.kept}
    lenders = {one.base for one in state.kept}
    unverified = [c for c in state.undamaged if c.key not in manifests]
    found = []
    for stat in listed:
        place = names.parse_checkpoint(stat.name)
        folder = names.checkpoint(place.step, place.epoch, place.token) if place else ""
        if not place:
            verdict = FileVerdict(stat, False, "foreign")
        elif folder in kept or place[:2] in lenders:
            verdict = FileVerdict(stat, False, "passed over")
        elif checkpoint := folders.get(folder):
            verdict = _retained(state, stat, checkpoint)
        elif stat.name in named:
            verdict = FileVerdict(stat, False, "named", step=named[stat.name][0])
        else:
            verdict = _unneeded(state, stat, place[:2], now, short_of_space)
        if verdict.goes and unverified:
            verdict = FileVerdict(stat, False, "unverified", step=unverified[0].step)
        found.append(verdict)
    return found


def _retained(state: RunState, stat: Stat, checkpoint: Checkpoint) -> FileVerdict:
    """The decision for a file in the folder of a retained checkpoint."""
    if state.head and checkpoint.key == state.head.key:
        return FileVerdict(stat, False, "newest")
    if checkpoint.key == state.best:
        return FileVerdict(stat, False, "best")
    if checkpoint.damaged:
        return FileVerdict(stat, False, "evidence")
    later = next((c for c in reversed(state.retained) if c.base == checkpoint.key != c.key), None)
    return FileVerdict(stat, False, "lender", step=later.step) if later else FileVerdict(stat, False, "kept")


def _unneeded(state: RunState, stat: Stat, key: Key, now: float, short_of_space: bool) -> FileVerdict:
    """The decision for a file that no retained checkpoint names (P8)."""
    if state.deleted is not None:
        return FileVerdict(stat, True, "deleted run")  # nothing is appended, so no commit can land (decisions/0013)
    epoch = key[1]
    retired = next((r for r in state.retired if r.key == key), None)
    if retired is None and epoch >= state.epoch:
        return FileVerdict(stat, False, "newest epoch", epoch=epoch)
    if retired is None and state.may_have_committed(epoch):
        return FileVerdict(stat, False, "unread epoch", epoch=epoch)
    since = stat.modified if retired is None else seen_by(state, retired)
    rule: Rule = "over" if retired is None else "retired"
    if short_of_space or now - since >= GRACE_S:
        return FileVerdict(stat, True, rule, epoch=epoch, seconds=now - min(since, now))
    left_s = math.inf if since > now else GRACE_S - (now - since)
    return FileVerdict(stat, False, rule, epoch=epoch, seconds=left_s)


def seen_by(state: RunState, retired: Retired) -> float:
    """Store time by which every session could see the entry that retired this; infinite while it is unknown.

    An entry may land long after it was written, and its hour begins when it lands. The writer of the next entry had
    read it, so this is the first later time of an entry in the state.
    """
    commits, links = (c.committed_at for c in state.retained), state.links
    times = (state.updated, *commits, *(r.at for r in state.retired), *(link.started for link in links))
    ended = (link.ended for link in links if link.ended)
    return min((at for at in (*times, *ended) if at > retired.at), default=math.inf)
