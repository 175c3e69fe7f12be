"""The rules for checkpoints: commit, retire, rewind; pure functions, part of relay/core/ledger/rules.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from relay.core.ledger import frozen, usage
from relay.core.ledger.changes import By, Commit, Key, Refused, Retire, Rewind, held, with_incident
from relay.core.ledger.fields import Kept
from relay.core.ledger.frozen import (
    KEPT_CHECKPOINTS,
    MAX_KEPT,
    MAX_RETAINED,
    MAX_RETIRED,
    MAX_SHARING,
    REWIND,
    SAMPLES_LATE_S,
)
from relay.core.ledger.state import Checkpoint, Retired, RunState
from relay.core.names import Names


def commit(state: RunState, change: Commit, by: By) -> RunState:
    holder = held(state, by, "commit")
    checkpoint = change.checkpoint.model_copy(update={"committed_at": by.at})
    _check_new(state, checkpoint, by)
    _check_samples(state, change)
    first = state.links[-1].commits == 0
    link = state.links[-1].model_copy(
        update={
            "to_step": checkpoint.step,
            "commits": state.links[-1].commits + 1,
            "seconds": change.seconds,
            **({"certified": change.certified, "why": change.why} if first and change.certified else {}),
        }
    )
    return state.model_copy(
        update={
            "step": checkpoint.step,
            "head": checkpoint,
            "retained": (*state.retained, checkpoint),
            "best": _best((*state.retained, checkpoint)),
            "metrics": dict(change.metrics),
            "links": (*state.links[:-1], link),
            "usage": usage.trained(
                state.usage, holder.account, checkpoint.step - state.step, usage.place_of_gpu(state)
            ),
            "failures": (),
            "deaths": 0,
        }
    )


def _check_samples(state: RunState, change: Commit) -> None:
    """Samples must be of this commit's own steps and this session's own time, so that none changes another's curve."""
    samples = change.samples
    if samples is None:
        return
    if samples.steps[0] <= state.step or samples.steps[-1] > change.checkpoint.step:
        raise Refused(f"commit: samples of steps outside {state.step + 1} to {change.checkpoint.step}")
    if samples.seconds[-1] > change.seconds + SAMPLES_LATE_S:
        raise Refused("commit: samples of a time after it")


def retire(state: RunState, change: Retire, by: By) -> RunState:
    held(state, by, "retire")
    going, gone = set(change.retire), set(change.collected)
    kept = {c.key for c in state.undamaged[-KEPT_CHECKPOINTS:]}
    kept |= {key for key in (state.head and state.head.key, state.best) if key}
    if going & kept:
        raise Refused(f"retire: {sorted(going & kept)} is the head, the best or one of the newest {KEPT_CHECKPOINTS}")
    if going - {c.key for c in state.retained}:
        raise Refused("retire: names a checkpoint that is not retained")
    if gone - {r.key for r in state.retired}:
        raise Refused("retire: collects a checkpoint that was not retired")
    staying = {c.base for c in state.retained if c.key not in going}
    if going & staying:
        raise Refused(f"retire: a checkpoint that stays borrows from {sorted(going & staying)}")
    fresh = tuple(Retired(step=c.step, epoch=c.epoch, at=by.at) for c in state.retained if c.key in going)
    return state.model_copy(
        update={
            "retained": tuple(c for c in state.retained if c.key not in going),
            "retired": (*(r for r in state.retired if r.key not in gone), *fresh)[-MAX_RETIRED:],
        }
    )


def rewind(state: RunState, change: Rewind, by: By) -> RunState:
    held(state, by, "rewind")
    if state.committed_by(by.epoch):
        raise Refused("rewind: this session has committed already")
    if state.head is None or state.head.key not in change.damaged:
        raise Refused("rewind: the head is not among the damaged checkpoints")
    bad = set(change.damaged)
    if bad - {c.key for c in state.undamaged}:
        raise Refused("rewind: names a checkpoint that is not retained, or was marked before")
    sound = [c for c in state.undamaged if c.key not in bad]
    if not sound or sound[-1].key != change.to:
        raise Refused(f"rewind: {change.to} is not the newest sound checkpoint that is retained")
    target = sound[-1]
    retained = tuple(c.model_copy(update={"damaged": True}) if c.key in bad else c for c in state.retained)
    link = state.links[-1].model_copy(update={"from_step": target.step, "to_step": target.step})
    state = state.model_copy(
        update={
            "step": target.step,
            "head": target,
            "retained": retained,
            "best": _best(retained),
            "links": (*state.links[:-1], link),
        }
    )
    return with_incident(state, by, REWIND, change.evidence)


def check_place(names: Names, checkpoint: Checkpoint, epoch: int) -> None:
    """I3: a run names only files under its own prefix. P6: the key holds step and epoch. Raises Refused."""
    if checkpoint.epoch != epoch:
        raise Refused(f"checkpoint of epoch {checkpoint.epoch} in an entry of epoch {epoch}")
    if not names.is_manifest(checkpoint.manifest, *checkpoint.key):
        raise Refused(f"checkpoint {checkpoint.key} lies at {checkpoint.manifest!r}, not under its own run and step")
    if checkpoint.next and checkpoint.next.step != checkpoint.step + 1:
        raise Refused("checkpoint certifies another step than the next one")


def _check_new(state: RunState, checkpoint: Checkpoint, by: By) -> None:
    check_place(Names(state.project, state.run), checkpoint, by.epoch)
    if checkpoint.step <= state.step:
        raise Refused(f"commit: step {checkpoint.step} is not beyond step {state.step}")
    if checkpoint.key in {c.key for c in state.retained} | {r.key for r in state.retired}:
        raise Refused(f"commit: step {checkpoint.step} of epoch {checkpoint.epoch} was committed before")
    if checkpoint.damaged:
        raise Refused("commit: a damaged checkpoint cannot become the head")
    if checkpoint.borrows and not any(c.key == checkpoint.base and c.lends for c in state.undamaged):
        raise Refused(f"commit: it borrows from {checkpoint.base}, which is not retained, damaged, or lends nothing")
    most = MAX_SHARING if checkpoint.base or state.bases else MAX_RETAINED
    if len(state.retained) >= most:
        raise Refused(f"commit: {most} checkpoints are retained; retire some first")


def _best(retained: Sequence[Checkpoint]) -> Key | None:
    """The highest validation metric among undamaged checkpoints; the earliest of equals."""
    measured = [c for c in retained if c.metric is not None and not c.damaged]
    return max(measured, key=lambda c: cast(float, c.metric)).key if measured else None


def keep(state: RunState, kept: tuple[Kept, ...], unkept: int, by: By) -> RunState:
    """Keep the newest of these in the state. If there are older ones, or `unkept` more, note an incident."""
    older = len(kept[:-MAX_KEPT]) + unkept
    if older:
        state = with_incident(state, by, frozen.NOT_KEPT, frozen.not_kept(older))
    return state.model_copy(update={"kept": kept[-MAX_KEPT:]})
