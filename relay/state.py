"""A run's small state and how each kind of entry changes it: pure functions; knows nothing of storage or clocks.

state(n) = apply(state(n-1), change). Every entry carries its resulting state, so reading the newest two suffices (P4).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT = 1
MAX_LINKS = 50
MAX_INCIDENTS = 20

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Id = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Step = Annotated[int, Field(ge=0, lt=2**53)]
Text = Annotated[str, Field(max_length=500)]
Certified = Literal["exact", "not-exact", "unknown"]


class Strict(BaseModel):
    """Refuses unknown keys and silent conversions; immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class NextDigest(Strict):
    """P9: the digest of the state one step after a checkpoint, and how it was computed."""

    step: Step
    path: Text
    digest: Digest


class Checkpoint(Strict):
    """A committed checkpoint as the ledger names it; its files are listed in the manifest."""

    step: Step
    epoch: int
    manifest: Text
    """Name of the manifest, under checkpoints/<project>/<run>/step_<step>.e<epoch>/."""
    ref: Text
    """The store's Ref of the manifest."""
    sha256: Digest
    """Of the manifest's bytes."""
    state_hash: Digest
    bytes: int
    committed_at: float
    """Store's clock when the commit was sent, unix seconds."""
    next: NextDigest | None = None
    metric: float | None = None
    """Validation accuracy, if this checkpoint was evaluated."""
    damaged: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """(step, epoch): uploaded at most once, never overwritten."""
        return self.step, self.epoch


class Holder(Strict):
    """The session that may write (P5)."""

    session: Id
    account: Name
    epoch: int
    since: float
    ttl_s: float
    latest_end: float | None
    target_steps: Step


class Link(Strict):
    """One session of the chain."""

    epoch: int
    account: Name
    from_step: Step
    to_step: Step
    certified: Certified = "unknown"
    why: Text = ""
    started: float
    ended: float | None = None
    end: Text = "open"


class Usage(Strict):
    """What one account has given to this run. Intervals are [start, end] unix seconds of the last 15 days."""

    sessions: int = 0
    steps: int = 0
    seconds: float = 0.0
    intervals: tuple[tuple[int, int], ...] = ()


class Incident(Strict):
    """Something a person should know of."""

    at: float
    epoch: int
    step: Step
    account: Name | None
    cause: Text
    text: Text


class Failure(Strict):
    """P10: what failed, where, in what surroundings; two equal ones without a commit between halt the run."""

    cause: Text
    step: Step
    config_hash: Digest
    fingerprint: Digest


class Retired(Strict):
    """A checkpoint that may be deleted once an hour has passed (P8)."""

    step: Step
    epoch: int
    at: float

    @property
    def key(self) -> tuple[int, int]:
        return self.step, self.epoch


class Origin(Strict):
    """Where a fork came from."""

    project: Name
    run: Name
    entry: Digest
    step: Step
    state_hash: Digest


class RunState(Strict):
    """All that a newcomer must know of a run."""

    format: Literal[1] = FORMAT
    project: Name
    run: Name
    run_id: Id
    ledger_store: Id
    checkpoint_store: Id
    config_hash: Digest
    created: float
    updated: float
    origin: Origin | None = None
    epoch: int = 0
    holder: Holder | None = None
    target_steps: Step = 0
    step: Step = 0
    head: Checkpoint | None = None
    retained: tuple[Checkpoint, ...] = ()
    retired: tuple[Retired, ...] = ()
    best: tuple[int, int] | None = None
    """(step, epoch) of the retained checkpoint with the highest validation metric."""
    metrics: dict[str, float] = {}
    links: tuple[Link, ...] = ()
    links_total: int = 0
    history: Text | None = None
    """Ref of the newest history object, which holds older links and names its predecessor."""
    usage: dict[str, Usage] = {}
    incidents: tuple[Incident, ...] = ()
    incidents_total: int = 0
    failure: Failure | None = None
    deaths: int = 0
    """Sessions that ended without a release since the last commit."""
    halted: Text | None = None
    """Why the run refuses to go on (P10); None in normal operation."""

    def committed_by(self, epoch: int) -> bool:
        """Whether the epoch has committed already (a rewind must come before)."""
        return any(c.epoch == epoch for c in self.retained) or any(r.epoch == epoch for r in self.retired)
