"""The change of each kind of entry in a run's ledger, as validated values. rules.py decides what a state allows."""

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
    """The state does not allow this change; `str(e)` gives the reason."""


class Genesis(Strict):
    """Begins a run and pins values that never change (P3). A fork has an `origin` and a copied `head` of epoch 0."""

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
    """How a predecessor without a release was found to be gone (P5), and the time that it used (P12)."""

    epoch: Epoch
    reason: Line
    seconds: Seconds
    """From its lease to its last sign of life."""


class Lease(Named):
    """The entry's session and account become holder of the entry's epoch (the state's next one)."""

    added = ADDED["Lease"]

    ttl_s: Annotated[float, Field(gt=0, le=86400)] = 180.0
    latest_end: Time | None = None
    """Store time after which any session may take over, with or without heartbeats."""
    target_steps: Step = 0
    took_over: TookOver | None = None
    history: History | None = None
    """Filled in by the ledger when the oldest links must leave the state."""
    gpu: Gpu | None = None
    """The kind of GPU that the session trains on."""


class Commit(Sparing):
    """A verified checkpoint becomes the head (P6)."""

    added = ADDED["Commit"]

    checkpoint: Checkpoint
    certified: Certified | None = None
    """The certificate of this session's first step (P9); used only in an epoch's first commit."""
    why: Line = ""
    seconds: Seconds = 0.0
    """Since this session's lease."""
    metrics: Metrics = Field(default={})
    samples: Samples | None = None
    """The metrics of training between the last commit and this one; not part of the state."""


class Retire(Strict):
    """Checkpoints that may be deleted after an hour (`retire`), and retired ones that were deleted (P8)."""

    retire: tuple[Key, ...] = ()
    collected: tuple[Key, ...] = ()


class Rewind(Strict):
    """Marks damaged checkpoints; the newest intact one becomes head again (P7)."""

    damaged: Annotated[tuple[Key, ...], Field(min_length=1)]
    to: Key
    evidence: Annotated[Text, Field(min_length=1)]


class Release(Strict):
    """The holder gives the lease back."""

    reason: Line
    next: Name | None = None
    """The account proposed as successor."""
    seconds: Seconds = 0.0
    """Since this session's lease."""


class Noted(Strict):
    """An incident for people to read; with `failure`, it counts for P10."""

    cause: Line
    text: Text
    step: Step
    failure: Failure | None = None


class Resume(Strict):
    """A person clears a halted run."""

    why: Text = ""


class Archive(Strict):
    """No session may train the run until `unarchive`. `took_over` is set for a holder that never released."""

    why: Text = ""
    took_over: TookOver | None = None


class Unarchive(Strict):
    """An archived run may train again."""


class Delete(Strict):
    """An archived run retains no checkpoints any more; no entry follows this one."""


MAX_OTHERS = 64
"""Most other histories that a choice names; the newest of them."""


class Other(Strict):
    """The newest entry of a history that the run goes on without, or of one that is gone."""

    seq: Step
    digest: Digest
    """Of its raw bytes."""
    step: Step
    epoch: Epoch


class Choose(Strict):
    """A person chose the history that the run goes on from: the one that ends in this entry's base.

    Written when a ledger holds several histories, or less than a machine has read in it.
    """

    epoch: Epoch
    """The highest epoch that any history or stored file is known to have used, so that none is used again."""
    others: Annotated[tuple[Other, ...], Field(max_length=MAX_OTHERS)] = ()
    """The histories that the run goes on without."""
    kept: Annotated[tuple[Kept, ...], Field(max_length=MAX_KEPT)] = ()
    """Their checkpoints, for `fork`."""
    unkept: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """Number of older ones without room there."""
    took_over: TookOver | None = None
    """Set if the chosen history ends in a lease that was never released."""
    why: Text = ""


@dataclass(frozen=True)
class By:
    """Who writes an entry, and when by the store's clock."""

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
    """The holder. Raises Refused unless it is this session, in the current epoch (I5)."""
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
