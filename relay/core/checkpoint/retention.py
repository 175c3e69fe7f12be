"""Which checkpoints stay and which files may go (P8): pure functions over one view of the ledger; deletes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from relay.app.messages.wording import duration
from relay.core.checkpoint.manifest import Manifest
from relay.core.ledger.frozen import MAX_RETAINED
from relay.core.ledger.state import Checkpoint, Retired, RunState
from relay.core.names import MANIFEST, Names
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
    be too many for one entry, N doubles; where K would be, it is as many as there is room for. What a checkpoint that
    stays borrows from stays with it.
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
    """The last ones, damaged ones, head and best, the newest that shares nothing with the head, and whatever these
    borrow from."""
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


@dataclass(frozen=True)
class FileVerdict:
    """One listed file: whether it may go, and the rule that says so, in words."""

    stat: Stat
    goes: bool
    rule: str


def going(judged: Iterable[FileVerdict]) -> list[Stat]:
    """What may go, in the order to delete it: manifests last."""
    found = (file.stat for file in judged if file.goes)
    return sorted(found, key=lambda stat: (stat.name.endswith("/" + MANIFEST), stat.name))


def judge_files(
    state: RunState,
    names: Names,
    listed: Iterable[Stat],
    manifests: Mapping[Key, Manifest],
    now: float,
    *,
    short_of_space: bool = False,
) -> list[FileVerdict]:
    """Every listed file, in the order of the listing: whether a view ending in `state` allows to delete it, and why.

    `listed` is any listing (advisory), `manifests` the verified manifests of retained checkpoints, `now` store time.
    A file may go if no retained checkpoint names it and (its checkpoint is retired, or its epoch is below the view's);
    what a view allows stays allowed for ever. None goes if the manifest of an undamaged retained checkpoint is missing.
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
        stays = "" if place else "not a file of a checkpoint: left alone"
        folder = names.checkpoint(place.step, place.epoch, place.token) if place else ""
        if place and (folder in kept or place[:2] in lenders):
            stays = "kept: an entry that was passed over may have committed it"
        elif place and (checkpoint := folders.get(folder)):
            stays = f"retained: {_role(state, checkpoint)}"
        elif stat.name in named:
            stays = f"the retained checkpoint of step {named[stat.name][0]:,} names it"
        goes, rule = (False, stays) if stays or not place else _may_go(state, stat, place[:2], now, short_of_space)
        if goes and unverified:
            goes, rule = False, f"nothing may go while the manifest of step {unverified[0].step:,} cannot be verified"
        found.append(FileVerdict(stat, goes, rule))
    return found


def _role(state: RunState, checkpoint: Checkpoint) -> str:
    if state.head and checkpoint.key == state.head.key:
        return "the newest checkpoint"
    if checkpoint.key == state.best:
        return "the best on validation"
    if checkpoint.damaged:
        return "evidence of damage"
    later = next((c for c in reversed(state.retained) if c.base == checkpoint.key != c.key), None)
    return f"step {later.step:,} shares files with it" if later else "kept by the run's settings"


def _may_go(state: RunState, stat: Stat, key: Key, now: float, short_of_space: bool) -> tuple[bool, str]:
    """Whether a file that no retained checkpoint names may go (P8), and the rule."""
    if state.deleted is not None:
        return True, "of a deleted run"  # nothing may be appended any more, so no commit can land (decisions/0013)
    epoch = key[1]
    retired = next((r for r in state.retired if r.key == key), None)
    if retired is None and epoch >= state.epoch:
        return False, f"of the newest epoch {epoch}: its commit may still land"
    if retired is None and state.may_have_committed(epoch):
        return False, f"of epoch {epoch}, of which entries may have been passed over: they may have committed it"
    since = stat.modified if retired is None else seen_by(state, retired)
    what = f"left by epoch {epoch}, which is over" if retired is None else "retired"
    if short_of_space or now - since >= GRACE_S:
        return True, f"{what}, {duration(now - min(since, now))} ago"
    if since > now:
        return False, f"{what} by the newest entry; readers have an hour from the next one on"
    return False, f"{what}; readers have {duration(GRACE_S - (now - since))} more"


def seen_by(state: RunState, retired: Retired) -> float:
    """Store time by which everybody could see the entry that retired this; infinite while the state does not tell.

    An entry may land long after it was written, and its hour begins when it lands. But whoever wrote the next one had
    read it: of the times of entries in the state, the first that is later.
    """
    commits, links = (c.committed_at for c in state.retained), state.links
    times = (state.updated, *commits, *(r.at for r in state.retired), *(link.started for link in links))
    ended = (link.ended for link in links if link.ended)
    return min((at for at in (*times, *ended) if at > retired.at), default=math.inf)
