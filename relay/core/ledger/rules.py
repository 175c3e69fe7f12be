"""How each kind of entry changes a run's state: pure functions; reads no clock.

state(n) = apply(state(n-1), change). If the rules refuse a change, its entry is invalid (P4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relay.core.ledger import frozen, keeping, usage
from relay.core.ledger.atrest import deletable_at
from relay.core.ledger.changes import (
    Archive,
    By,
    Choose,
    Delete,
    Genesis,
    Lease,
    Noted,
    Refused,
    Release,
    Resume,
    TookOver,
    Unarchive,
    held,
    parse_change,
    with_incident,
)
from relay.core.ledger.fields import Kept, Passed
from relay.core.ledger.frozen import MAX_ACCOUNTS, MAX_FAILURES, MAX_LEAP, MAX_LINKS, REPAIRED
from relay.core.ledger.state import Failure, History, Holder, Link, RunState
from relay.core.names import Names

PINNED = ("project", "run", "run_id", "ledger_store", "checkpoint_store", "config_hash", "created", "origin")
"""Fields of a run that the genesis sets and no later entry changes."""


def apply(
    state: RunState | None,
    kind: str,
    change: Mapping[str, Any],
    by: By,
    voids: Sequence[int] = (),
    passed: Passed | None = None,
) -> RunState:
    """The state after a change. `voids` are the slots between the entry and its base, which are noted as an incident
    (P4); `passed` describes them, from format 5 on.

    Raises Refused (exit 65) if the change is malformed or not allowed in this state to this session.
    """
    parsed = parse_change(kind, change)
    if isinstance(parsed, Genesis):
        return _noted_voids(_genesis(state, parsed, by), by, voids)
    if state is None:
        raise Refused(f"{kind}: this run has not begun")
    _check_rest(state, kind)
    before = _noted_passing(state, by, voids, passed) if passed else _noted_voids(state, by, voids)
    after = _RULES[kind](before, parsed, by)
    return after.model_copy(update={"updated": by.at})


def alike(one: RunState, other: RunState) -> None:
    """Raises Refused unless both are states of the same run."""
    if any(getattr(one, name) != getattr(other, name) for name in PINNED):
        raise Refused("its state is of another run")


def succeeds(before: RunState, after: RunState) -> None:
    """Raises Refused if `after` can never follow `before`, whatever entries were lost between them.

    The step falls only by a rewind, which marks the old head as damaged, or by an entry that passed over the old head's
    commit and keeps its checkpoint. The epoch falls only below epochs that passed-over slots may have begun.
    """
    alike(before, after)
    if after.next_epoch <= before.epoch:
        raise Refused(f"its epoch {after.epoch} comes before epoch {before.epoch}")
    old_head = after.checkpoint(before.head.key) if before.head else None
    kept = before.head is not None and before.head.key in {k.key for k in after.kept}
    if after.step < before.step and not (kept or (old_head and old_head.damaged)):
        raise Refused(f"its step {after.step} comes before step {before.step}")
    if before.deleted != after.deleted and before.deleted is not None:
        raise Refused("its run was deleted before")


def links_to_archive(state: RunState) -> tuple[Link, ...]:
    """The links that the next lease must move to a history object; mostly none."""
    return state.links[: MAX_LINKS // 2] if len(state.links) >= MAX_LINKS else ()


def _genesis(state: RunState | None, change: Genesis, by: By) -> RunState:
    if state is not None:
        raise Refused("genesis: this run has begun already")
    if by.epoch:
        raise Refused("genesis: a run begins in epoch 0")
    if (change.head is None) != (change.origin is None):
        raise Refused("genesis: a fork has both an origin and a checkpoint, any other run neither")
    head = change.head
    if head:
        keeping.check_place(Names(change.project, change.run), head, epoch=0)
        if head.borrows:
            raise Refused("genesis: a fork shares nothing with its parent")
        head = head.model_copy(update={"committed_at": by.at})
    return RunState(
        project=change.project,
        run=change.run,
        run_id=change.run_id,
        ledger_store=change.ledger_store,
        checkpoint_store=change.checkpoint_store,
        config_hash=change.config_hash,
        created=by.at,
        updated=by.at,
        origin=change.origin,
        step=head.step if head else 0,
        head=head,
        retained=(head,) if head else (),
        best=head.key if head and head.metric is not None else None,
    )


def _lease(state: RunState, change: Lease, by: By) -> RunState:
    if state.halted:
        raise Refused(f"lease: the run is halted: {state.halted}")
    if by.account is None:
        raise Refused("lease: no account")
    if by.epoch != state.next_epoch:
        raise Refused(f"lease: epoch {by.epoch} does not follow {state.next_epoch - 1}")
    state = _archived(_buried(state, change.took_over, by, "lease"), change.history)
    if by.account not in state.usage and len(state.usage) >= MAX_ACCOUNTS:
        raise Refused(f"lease: {MAX_ACCOUNTS} accounts have trained in this run; fork it to go on with more")
    link = Link(
        epoch=by.epoch,
        account=by.account,
        from_step=state.step,
        to_step=state.step,
        started=by.at,
        gpu=change.gpu,
    )
    holder = Holder(
        session=by.session,
        account=by.account,
        epoch=by.epoch,
        since=by.at,
        ttl_s=change.ttl_s,
        latest_end=change.latest_end,
        target_steps=change.target_steps,
        beat=change.beat,
    )
    return state.model_copy(
        update={
            "epoch": by.epoch,
            "holder": holder,
            "target_steps": change.target_steps,
            "links": (*state.links, link),
            "links_total": state.links_total + 1,
            "usage": usage.started(state.usage, by.account),
            "gpus": usage.known(state.gpus, change.gpu),
            "next": None,
            "skipped": None,
        }
    )


def _buried(state: RunState, gone: TookOver | None, by: By, kind: str) -> RunState:
    """End a holder that never released; the session that takes over counts its time (P12)."""
    holder = state.holder
    if (gone.epoch if gone else None) != (holder.epoch if holder else None):
        raise Refused(f"{kind}: says it takes over from another session than the holder")
    if holder is None or gone is None:
        return state
    given = max(gone.seconds, state.links[-1].seconds)  # its newest commit is also a sign of life
    state = _ended(state, holder, given, gone.reason, by.at)
    return state.model_copy(update={"deaths": state.deaths + 1})


def _ended(state: RunState, holder: Holder, seconds: float, why: str, at: float) -> RunState:
    """Remove the holder, close its link, and add the session's time to the account's usage."""
    last = state.links[-1].model_copy(update={"seconds": seconds, "ended": at, "end": why})
    return state.model_copy(
        update={
            "holder": None,
            "links": (*state.links[:-1], last),
            "usage": usage.ended(state.usage, holder.account, holder.since, seconds, at, usage.place_of_gpu(state)),
        }
    )


def _archived(state: RunState, history: History | None) -> RunState:
    moved = links_to_archive(state)
    if bool(moved) != (history is not None):
        raise Refused("lease: the oldest links go to a history object exactly when the state is full of them")
    if history is None:
        return state
    if history.links != state.links_total - len(state.links) + len(moved):
        raise Refused("lease: the history object does not hold the links that leave the state")
    return state.model_copy(update={"links": state.links[len(moved) :], "history": history})


def _release(state: RunState, change: Release, by: By) -> RunState:
    holder = held(state, by, "release")
    ended = _ended(state, holder, change.seconds, change.reason, by.at)
    return ended.model_copy(update={"next": change.next})


def _incident(state: RunState, change: Noted, by: By) -> RunState:
    if by.epoch != state.epoch:
        raise Refused(f"incident: epoch {by.epoch} is not the run's epoch {state.epoch}")
    noted = with_incident(state, by, change.cause, change.text, change.step)
    if change.failure is None:
        return noted
    held(state, by, "incident")
    return _failed(noted, change.failure)


def _failed(state: RunState, failure: Failure) -> RunState:
    """P10: halt at the second equal failure. Resume is exact, so the failure would repeat for ever."""
    if not any(_same(failure, earlier) for earlier in state.failures):
        return state.model_copy(update={"failures": (*state.failures, failure)[-MAX_FAILURES:]})
    return state.model_copy(update={"halted": frozen.halted(failure.cause, failure.step)})


def _same(one: Failure, other: Failure) -> bool:
    """Whether two failures since one commit are equal. A NaN is found at the next snapshot, whose step is arbitrary, so
    its step does not count."""
    if one.cause == other.cause == frozen.NON_FINITE:
        other = other.model_copy(update={"step": one.step})
    return one == other


def _resume(state: RunState, change: Resume, by: By) -> RunState:
    if state.halted is None:
        raise Refused("resume: the run is not halted")
    cleared = state.model_copy(update={"halted": None, "failures": ()})
    return with_incident(cleared, by, frozen.RESUMED, change.why)


def _check_rest(state: RunState, kind: str) -> None:
    """An archived run accepts only entries that end this; a deleted run accepts none."""
    if state.deleted is not None:
        raise Refused(f"{kind}: the run was deleted")
    if state.archived is not None and kind not in ("unarchive", "delete", "choose"):
        raise Refused(f"{kind}: the run is archived")


def _archive(state: RunState, change: Archive, by: By) -> RunState:
    if by.epoch != state.epoch:
        raise Refused(f"archive: epoch {by.epoch} is not the run's epoch {state.epoch}")
    ended = _buried(state, change.took_over, by, "archive")
    noted = with_incident(ended, by, frozen.ARCHIVED, change.why or frozen.ARCHIVED_BY_HAND)
    return noted.model_copy(update={"archived": by.at})


def _unarchive(state: RunState, change: Unarchive, by: By) -> RunState:
    if state.archived is None:
        raise Refused("unarchive: the run is not archived")
    noted = with_incident(state, by, frozen.UNARCHIVED, frozen.MAY_TRAIN_AGAIN)
    return noted.model_copy(update={"archived": None})


def _delete(state: RunState, change: Delete, by: By) -> RunState:
    """The step stays: it never goes back (I6)."""
    ready = deletable_at(state)
    if ready is None or by.at < ready:
        raise Refused("delete: the run has not been archived for long enough")
    nothing: dict[str, Any] = {"head": None, "retained": (), "retired": (), "best": None, "kept": ()}
    return state.model_copy(update={**nothing, "deleted": by.at})


def _choose(state: RunState, change: Choose, by: By) -> RunState:
    return choose(_buried(state, change.took_over, by, "choose"), change, by)


def _noted_voids(state: RunState, by: By, voids: Sequence[int]) -> RunState:
    return with_incident(state, by, frozen.VOID_ENTRY, frozen.void(voids)) if voids else state


def _noted_passing(state: RunState, by: By, voids: Sequence[int], passed: Passed) -> RunState:
    """Note the unreadable slots, and keep the checkpoints that they may have committed (P4, P7)."""
    state = with_incident(state, by, frozen.PASSED_OVER, frozen.passed_over(voids, passed.digests[-1]))
    for one in passed.kept:
        _check_kept(state, one, voids)
        state = with_incident(state, by, frozen.STEP_BACK, frozen.step_back(one.step, one.epoch, voids))
    begun = max(voids[-1], state.next_epoch - 1 + len(voids))  # the second if a person's choice raised the epoch
    state = keeping.keep(state, (*state.kept, *passed.kept), passed.unkept or 0, by)
    return state.model_copy(update={"skipped": begun})


def _check_kept(state: RunState, kept: Kept, voids: Sequence[int]) -> None:
    """Those slots can only have committed checkpoints of this run and of its newest epoch. Raises Refused."""
    if kept.slot != voids[-1] or kept.epoch != state.epoch:
        raise Refused(f"passed over: step {kept.step} of epoch {kept.epoch} cannot have been committed there")
    if not Names(state.project, state.run).is_manifest(kept.manifest, *kept.key):
        raise Refused(f"passed over: {kept.manifest!r} is no manifest of step {kept.step} of epoch {kept.epoch}")


_RULES: Mapping[str, Callable[[RunState, Any, By], RunState]] = {
    "lease": _lease,
    "commit": keeping.commit,
    "retire": keeping.retire,
    "rewind": keeping.rewind,
    "release": _release,
    "incident": _incident,
    "resume": _resume,
    "archive": _archive,
    "unarchive": _unarchive,
    "delete": _delete,
    "choose": _choose,
}


# --- The rule for `choose`: a person decides which history a run continues from -------------------------------------


def choose(state: RunState, change: Choose, by: By) -> RunState:
    """Continue the run from `state`, keep the other histories' checkpoints, and never use their epochs again.

    Raises Refused if a session holds the lease, or if the change keeps a checkpoint that is not of this run.
    """
    if state.holder is not None:
        raise Refused("choose: the run is held; the session that holds it has to end first")
    if change.epoch < state.epoch:
        raise Refused(f"choose: epoch {change.epoch} comes before epoch {state.epoch}")
    if change.epoch > highest_epoch(state):
        raise Refused(f"choose: epoch {change.epoch} is more than {MAX_LEAP} beyond epoch {state.next_epoch - 1}")
    for one in change.kept:
        _check_choice(state, one, change.epoch)
    known = {(k.key, k.sha256) for k in change.kept}
    kept = (*(k for k in state.kept if (k.key, k.sha256) not in known), *change.kept)
    state = keeping.keep(with_incident(state, by, REPAIRED, change.why), kept, change.unkept or 0, by)
    return state.model_copy(update={"epoch": change.epoch, "next": None})


def highest_epoch(state: RunState) -> int:
    """The highest epoch that a choice may set. It is bounded because no lease can follow the largest epoch number."""
    return state.next_epoch - 1 + MAX_LEAP


def _check_choice(state: RunState, kept: Kept, epoch: int) -> None:
    if kept.epoch > epoch or not Names(state.project, state.run).is_manifest(kept.manifest, *kept.key):
        raise Refused(f"choose: {kept.manifest!r} is no manifest of step {kept.step} of epoch {kept.epoch}")
