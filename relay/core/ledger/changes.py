"""What each kind of a run's entry may say, as validated values; knows nothing of whether the state allows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from relay.core.errors import BadData
from relay.core.ledger.canonical import NotCanonical, dumps
from relay.core.ledger.fields import (
    Certified,
    Digest,
    Epoch,
    Gpu,
    Id,
    Kept,
    Line,
    Metrics,
    Seconds,
    Sparing,
    Strict,
    Text,
    Time,
)
from relay.core.ledger.frozen import ADDED, MAX_INCIDENTS, MAX_KEPT
from relay.core.ledger.sessionreport import Samples
from relay.core.ledger.state import Checkpoint, Failure, History, Holder, Incident, Named, Origin, RunState
from relay.core.names import Name
from relay.core.workload import Step

Key = tuple[Step, Epoch]
"""(step, epoch) of a checkpoint."""


class Refused(BadData):
    """The state does not allow this change; `str(e)` says why and what would."""


class Genesis(Strict):
    """Begins a run and pins what may never change (P3). A fork brings `origin` and its copied `head` of epoch 0."""

    project: Name
    run: Name
    run_id: Id
    ledger_store: Id
    checkpoint_store: Id
    config_hash: Digest
    config: dict[str, Any]
    """The pinned configuration, plain values."""
    origin: Origin | None = None
    head: Checkpoint | None = None


class TookOver(Strict):
    """How the predecessor that never released was found to be gone (P5), and what it had given (P12)."""

    epoch: Epoch
    reason: Line
    seconds: Seconds
    """From its lease to its last sign of life."""


class Lease(Named):
    """The entry's session, for the entry's account, becomes holder of the entry's epoch (the state's plus one)."""

    added = ADDED["Lease"]

    ttl_s: Annotated[float, Field(gt=0, le=86400)] = 180.0
    latest_end: Time | None = None
    """Store's clock past which anybody may take over, heartbeats or not."""
    target_steps: Step = 0
    took_over: TookOver | None = None
    history: History | None = None
    """Filled in by the ledger when the oldest links must leave the state."""
    gpu: Gpu | None = None
    """What the session will train on."""


class Commit(Sparing):
    """A verified checkpoint becomes the head (P6)."""

    added = ADDED["Commit"]

    checkpoint: Checkpoint
    certified: Certified | None = None
    """P9's verdict on this session's start; heard only in an epoch's first commit."""
    why: Line = ""
    seconds: Seconds = 0.0
    """Since this session's lease."""
    metrics: Metrics = Field(default={})
    samples: Samples | None = None
    """What training told between the last commit and this one; no part of the state."""


class Retire(Strict):
    """Checkpoints that may be deleted an hour from now (`retire`), and retired ones that are now gone (P8)."""

    retire: tuple[Key, ...] = ()
    collected: tuple[Key, ...] = ()


class Rewind(Strict):
    """Damaged checkpoints are marked and the newest sound one becomes head again (P7)."""

    damaged: Annotated[tuple[Key, ...], Field(min_length=1)]
    to: Key
    evidence: Annotated[Text, Field(min_length=1)]


class Release(Strict):
    """The holder ends as planned."""

    reason: Line
    next: Name | None = None
    """The account proposed as successor."""
    seconds: Seconds = 0.0
    """Since this session's lease."""


class Noted(Strict):
    """Something a person should know; with `failure`, P10's count of repeating failures."""

    cause: Line
    text: Text
    step: Step
    failure: Failure | None = None


class Resume(Strict):
    """A person clears a halted run."""

    why: Text = ""


class Archive(Strict):
    """Nobody trains the run any more, until `unarchive`. With `took_over` for a holder that never released."""

    why: Text = ""
    took_over: TookOver | None = None


class Unarchive(Strict):
    """An archived run may train again."""


class Delete(Strict):
    """A run archived for long enough retains nothing any more; nothing follows this entry."""


MAX_OTHERS = 64
"""Histories that a choice names; the newest of them."""


class Other(Strict):
    """The newest entry of a history that the run goes on without, as it was seen; or of one that is gone."""

    seq: Step
    digest: Digest
    """Of its raw bytes."""
    step: Step
    epoch: Epoch


class Choose(Strict):
    """A person decides which history the run goes on from: the one that ends in this entry's base.

    Written where a ledger holds several histories, or less than a machine has seen in it.
    """

    epoch: Epoch
    """The highest that any of them, or any stored file, is known to have used: none comes again."""
    others: Annotated[tuple[Other, ...], Field(max_length=MAX_OTHERS)] = ()
    """The histories that the run goes on without."""
    kept: Annotated[tuple[Kept, ...], Field(max_length=MAX_KEPT)] = ()
    """Their checkpoints, for `fork`."""
    unkept: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """How many older ones found no room there."""
    took_over: TookOver | None = None
    """Set where the chosen history ends in a lease that was never released."""
    why: Text = ""


@dataclass(frozen=True)
class By:
    """Who makes an entry, and when by the store's clock."""

    session: str
    account: str | None
    epoch: int
    at: float


Change = Genesis | Lease | Commit | Retire | Rewind | Release | Noted | Resume | Archive | Unarchive | Delete | Choose

KINDS: Mapping[str, type[Change]] = {
    "genesis": Genesis,
    "lease": Lease,
    "commit": Commit,
    "retire": Retire,
    "rewind": Rewind,
    "release": Release,
    "incident": Noted,
    "resume": Resume,
    "archive": Archive,
    "unarchive": Unarchive,
    "delete": Delete,
    "choose": Choose,
}


def parse_change(kind: str, change: Mapping[str, Any]) -> Change:
    """The validated change of a known kind; raises Refused naming the field."""
    try:
        return KINDS[kind].model_validate_json(dumps(dict(change)))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "the change"
        raise Refused(f"{kind}: {where}: {problem['msg']}") from error
    except NotCanonical as error:
        raise Refused(f"{kind}: {error}") from error


def held(state: RunState, by: By, kind: str) -> Holder:
    """I5: only the current epoch's session."""
    holder = state.holder
    if holder is None or holder.epoch != by.epoch or holder.session != by.session or holder.account != by.account:
        raise Refused(f"{kind}: this session does not hold the lease of epoch {state.epoch}")
    return holder


def with_incident(state: RunState, by: By, cause: str, text: str, step: int | None = None) -> RunState:
    here = state.step if step is None else step
    new = Incident(at=by.at, epoch=by.epoch, step=here, account=by.account, cause=cause, text=text)
    return state.model_copy(
        update={
            "incidents": (*state.incidents, new)[-MAX_INCIDENTS:],
            "incidents_total": state.incidents_total + 1,
        }
    )
