"""The product's own pure rules, asked about the model's small views and remembered; knows no world and no search."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, cast

from relay.core.checkpoint import passedover
from relay.core.checkpoint.manifest import FileEntry, Manifest
from relay.core.checkpoint.retention import Keep, decide_files, going, to_retire
from relay.core.ledger.changes import By, Commit, Lease, Refused, Release, Retire, Rewind, TookOver
from relay.core.ledger.fields import Kept, Passed
from relay.core.ledger.frozen import PASSED_OVER
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.rules import apply
from relay.core.ledger.state import Checkpoint, Holder, Incident, Link, Retired, RunState
from relay.core.names import MANIFEST
from storage.base import Ref, Stat, Store
from tests.core.making import NAMES, QuietRuntime, checkpoint, genesis, id_of

NOBODY, ME, OTHER = -1, -2, -3
"""The holder as one session sees it."""
DATA = "a.bin"
KEEP = Keep(last=2)
AT = 1.7e9
Key = tuple[int, int]
File = tuple[int, int, str]
"""(step, epoch, name) of one stored file."""


class View(NamedTuple):
    """What the rules need to know of a run's state; `holder` is a session's number, or NOBODY, ME, OTHER."""

    epoch: int
    holder: int
    step: int
    retained: tuple[Key, ...]
    damaged: tuple[Key, ...]
    retired: tuple[Key, ...]
    committed: bool
    """Whether the newest epoch has committed."""
    kept: tuple[Key, ...] = ()
    """Checkpoints that entries which were passed over may have committed."""
    skipped: int = 0
    """The newest slot passed over since the last lease: the next one takes a later epoch than that number."""
    unread: tuple[tuple[int, int, int], ...] = ()
    """Where entries were passed over: the epoch before, the one after, and the first that began later."""

    @property
    def sound(self) -> tuple[Key, ...]:
        """Retained and not marked as damaged; the last one is the head."""
        return tuple(key for key in self.retained if key not in self.damaged)


class Change(NamedTuple):
    """One entry's kind, the epoch it is sent under, and the checkpoints it names."""

    kind: str
    epoch: int
    keys: tuple[Key, ...] = ()


def files_of(key: Key) -> tuple[File, File]:
    return (*key, DATA), (*key, MANIFEST)


@cache
def after(view: View, change: Change) -> View | None:
    """The view after ME lands the change on it; None where the product refuses (`relay.core.ledger.rules.apply`)."""
    who = By(id_of(ME % 100), "me", change.epoch, AT)
    try:
        return seen(apply(state_of(view), change.kind, said(view, change), who))
    except Refused:
        return None


@cache
def passing(view: View, change: Change, slot: int, kept: tuple[Key, ...]) -> View | None:
    """The view after ME lands the change on it, and passes over what lies in `slot`; None where the product refuses."""
    who = By(id_of(ME % 100), "me", change.epoch, AT)
    passed = Passed(digests=("d" * 64,), kept=tuple(_kept(key, slot) for key in kept))
    try:
        return seen(apply(state_of(view), change.kind, said(view, change), who, (slot,), passed))
    except Refused:
        return None


@cache
def next_epoch(view: View) -> int:
    """That the next lease takes, where it passes over nothing."""
    return state_of(view).next_epoch


@cache
def keeping(view: View, files: frozenset[File]) -> tuple[Key, ...]:
    """What an entry keeps that passes over what may have committed some of these files."""
    shelf = cast(Store, _Shelf([_stat(*file) for file in sorted(files)]))
    found = passedover._unknown(RunLedger(shelf, NAMES.project, NAMES.run, QuietRuntime(0)), shelf, state_of(view))
    return tuple(sorted(place[:2] for stat in found if (place := NAMES.parse_checkpoint(stat.name))))


class _Shelf:
    """Lists files, and does nothing else."""

    address, unique_names = "model://", True

    def __init__(self, stats: list[Stat]) -> None:
        self.stats = stats

    def list(self, prefix: str) -> list[Stat]:
        return [stat for stat in self.stats if stat.name.startswith(prefix)]


@cache
def retiring(view: View) -> tuple[Key, ...]:
    """What `relay.core.checkpoint.retention.to_retire` would retire."""
    return to_retire(state_of(view), KEEP)


@cache
def deleting(view: View, files: frozenset[File]) -> tuple[File, ...]:
    """What `relay.core.checkpoint.retention.decide_files` lets go now, in the order to delete it; no hour is waited
    for."""
    listed = [_stat(*file) for file in sorted(files)]
    manifests = {key: manifest(key) for key in view.retained}
    judged = decide_files(state_of(view), NAMES, listed, manifests, AT, short_of_space=True)
    return tuple(place[:3] for stat in going(judged) if (place := NAMES.parse_checkpoint(stat.name)))


def forget() -> None:
    """The product has been changed: ask it again."""
    for remembered in (after, passing, next_epoch, keeping, retiring, deleting):
        remembered.cache_clear()


def seen(state: RunState) -> View:
    """A real state, reduced to what the model keeps of it."""
    holder = NOBODY if state.holder is None else ME if state.holder.session == id_of(ME % 100) else OTHER
    return View(
        epoch=state.epoch,
        holder=holder,
        step=state.step,
        retained=tuple(c.key for c in state.retained),
        damaged=tuple(c.key for c in state.retained if c.damaged),
        retired=tuple(r.key for r in state.retired),
        committed=state.committed_by(state.epoch),
        kept=tuple(k.key for k in state.kept),
        skipped=state.skipped or 0,
        unread=tuple(state.unread_spans),
    )


@cache
def state_of(view: View) -> RunState:
    """The plainest real state that `seen` reduces to this view."""
    retained = tuple(_checkpoint(key, damaged=key in view.damaged) for key in view.retained)
    begun = apply(None, "genesis", genesis().model_dump(mode="json"), By(id_of(1), None, 0, AT))
    links = _links(view)
    fields = {
        "epoch": view.epoch,
        "holder": _holder(view),
        "step": view.step,
        "head": [c for c in retained if not c.damaged][-1] if retained else None,
        "retained": retained,
        "retired": tuple(Retired(step=step, epoch=epoch, at=AT) for step, epoch in view.retired),
        "links": links,
        "links_total": len(links),
        "kept": tuple(_kept(key, 1) for key in view.kept),
        "skipped": view.skipped or None,
        "incidents": tuple(_passed_over(after) for _, after, _ in view.unread),
    }
    return RunState.model_validate({**dict(begun), **fields})


def _links(view: View) -> tuple[Link, ...]:
    """That of the newest epoch, and of those that the view names."""
    named = {epoch for span in view.unread for epoch in span if 0 < epoch < view.epoch}
    link = Link(epoch=view.epoch, account="me", from_step=0, to_step=view.step, commits=int(view.committed), started=AT)
    end = {"ended": AT, "end": "budget"}
    earlier = (link.model_copy(update={"epoch": epoch, "commits": 0, **end}) for epoch in sorted(named))
    newest = link.model_copy(update=end) if view.holder == NOBODY else link
    return (*earlier, newest) if view.epoch else ()


def _holder(view: View) -> Holder | None:
    if view.holder == NOBODY:
        return None
    session, account = (id_of(ME % 100), "me") if view.holder == ME else (id_of(OTHER % 100), "other")
    return Holder(
        session=session, account=account, epoch=view.epoch, since=AT, ttl_s=180.0, latest_end=None, target_steps=99
    )


def said(view: View, change: Change) -> dict[str, object]:
    """The change as the product's entry says it."""
    if change.kind == "lease":
        gone = None if view.holder == NOBODY else TookOver(epoch=view.epoch, reason="silent", seconds=1.0)
        return Lease(target_steps=99, took_over=gone).model_dump(mode="json")
    if change.kind == "commit":
        return Commit(checkpoint=_checkpoint(change.keys[0])).model_dump(mode="json")
    if change.kind == "retire":
        return Retire(retire=change.keys).model_dump(mode="json")
    if change.kind == "rewind":
        *damaged, target = change.keys
        return Rewind(damaged=tuple(damaged), to=target, evidence="wrong bytes").model_dump(mode="json")
    return Release(reason="budget").model_dump(mode="json")


def _checkpoint(key: Key, damaged: bool = False) -> Checkpoint:
    return checkpoint(*key, damaged=damaged)


def _passed_over(epoch: int) -> Incident:
    return Incident(at=AT, epoch=epoch, step=0, account=None, cause=PASSED_OVER, text="slot 1")


def _kept(key: Key, slot: int) -> Kept:
    name = NAMES.manifest(*key)
    return Kept(slot=slot, step=key[0], epoch=key[1], manifest=name, ref=name, sha256="a" * 64)


def _stat(step: int, epoch: int, name: str) -> Stat:
    full = NAMES.checkpoint(step, epoch) + name
    return Stat(Ref(full), full, 1, AT)


@cache
def manifest(key: Key) -> Manifest:
    name = NAMES.checkpoint(*key) + DATA
    return Manifest(
        project=NAMES.project,
        run=NAMES.run,
        step=key[0],
        epoch=key[1],
        state_hash="b" * 64,
        files=(FileEntry(name=DATA, key=name, ref=name, size=1, sha256="a" * 64),),
        config_hash="c" * 64,
        fingerprint={},
        code_version="1",
    )
