"""The state of a run. Every entry carries all of it, so a reader needs only the newest two entries (P4)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from relay.core.ledger.fields import (
    Certified,
    Digest,
    Epoch,
    Exact,
    Gpu,
    GpuIndex,
    Id,
    Kept,
    Line,
    Metrics,
    Seconds,
    Sparing,
    Strict,
    Text,
    Time,
    Whole,
)
from relay.core.ledger.frozen import ADDED, MAX_FURTHER, MAX_GPUS, MAX_INTERVALS, MAX_KEPT, OPEN, PASSED_OVER
from relay.core.names import MANIFEST, Name, has_token
from relay.core.workload import Step


class Named(Sparing):
    """Base of the objects that may name a heartbeat by its Ref, for stores where its name does not suffice."""

    added: ClassVar[tuple[str, ...]] = ADDED["Named"]

    beat: Exact | None = None
    """Ref of the session's heartbeats, on stores where names do not find objects."""


class NextDigest(Strict):
    """P9: the digest of the state one step after a checkpoint, and how it was computed."""

    step: Step
    path: Exact
    digest: Digest


class Checkpoint(Sparing):
    """A committed checkpoint as the ledger names it; its files are listed in the manifest."""

    added: ClassVar[tuple[str, ...]] = ADDED["Checkpoint"]

    step: Step
    epoch: Epoch
    manifest: Exact
    """Name of the manifest, under checkpoints/<project>/<run>/step_<step>.e<epoch>/, or the same with a token."""
    ref: Exact
    """The store's Ref of the manifest."""
    sha256: Digest
    """Of the manifest's bytes."""
    state_hash: Digest
    bytes: Step
    committed_at: Time = 0.0
    """Store's clock when the commit was sent, unix seconds; the rules set it to the entry's time."""
    next: NextDigest | None = None
    metric: float | None = None
    """The headline metric as a score (larger is better), if this checkpoint was evaluated."""
    damaged: bool = False
    base: tuple[Step, Epoch] | None = None
    """Key of the checkpoint that holds its shared files: its own if it lends them, an earlier one's if it borrows them.
    None: it shares none."""

    @property
    def key(self) -> tuple[int, int]:
        """(step, epoch): uploaded at most once, never overwritten."""
        return self.step, self.epoch

    @property
    def folder(self) -> str:
        """Prefix of its own files. Another folder with the same key does not belong to it."""
        return self.manifest.removesuffix(MANIFEST)

    @property
    def aside(self) -> bool:
        """Whether its folder has a token, which programs before format 5 do not know."""
        return has_token(self.manifest)

    @property
    def lends(self) -> bool:
        """Whether later checkpoints may name its files."""
        return self.base == self.key

    @property
    def borrows(self) -> bool:
        """Whether it names files of an earlier checkpoint."""
        return self.base is not None and not self.lends


class Holder(Named):
    """The session that may write (P5)."""

    session: Id
    account: Name
    epoch: Epoch
    since: Time
    ttl_s: Annotated[float, Field(gt=0, le=86400)]
    latest_end: Time | None
    target_steps: Step


class Link(Sparing):
    """One session of the chain."""

    added: ClassVar[tuple[str, ...]] = ADDED["Link"]

    epoch: Epoch
    account: Name
    from_step: Step
    to_step: Step
    commits: int = 0
    certified: Certified = "unknown"
    why: Line = ""
    started: Time
    seconds: Seconds = 0.0
    """Since the lease, as of its newest commit, its release or its successor's lease."""
    ended: Time | None = None
    end: Line = OPEN
    gpu: Gpu | None = None
    """The kind of GPU it trained on; None: unknown, as for every session of the first version."""


class Usage(Sparing):
    """One account's usage in this run. Intervals are [start, end] unix seconds of the last 15 days."""

    added: ClassVar[tuple[str, ...]] = ADDED["Usage"]

    sessions: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Lifetime total of ended sessions; readers add the open one (P12)."""
    intervals: tuple[tuple[int, int], ...] = ()
    by_gpu: tuple[tuple[GpuIndex, Whole, Whole], ...] = ()
    """(index in the run's `gpus`, seconds of ended sessions, steps) of each kind; the rest of the totals is unknown."""


class Incident(Strict):
    """An incident for people to read."""

    at: Time
    epoch: Epoch
    step: Step
    account: Name | None
    cause: Line
    text: Text


class Failure(Strict):
    """A failure, its step and its environment; two equal ones without a commit between them halt the run (P10)."""

    cause: Line
    step: Step
    config_hash: Digest
    fingerprint: Digest


class Retired(Strict):
    """A checkpoint that may be deleted once an hour has passed (P8)."""

    step: Step
    epoch: Epoch
    at: Time

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


class History(Strict):
    """The object that holds older links; it is immutable and names its own predecessor."""

    ref: Exact
    sha256: Digest
    links: int
    """Number of links in it and all its predecessors."""


class RunState(Sparing):
    """The whole state of a run."""

    added: ClassVar[tuple[str, ...]] = ADDED["RunState"]

    format: Literal[1] = 1
    project: Name
    run: Name
    run_id: Id
    ledger_store: Id
    checkpoint_store: Id
    config_hash: Digest
    created: Time
    updated: Time
    origin: Origin | None = None
    epoch: Epoch = 0
    holder: Holder | None = None
    target_steps: Step = 0
    step: Step = 0
    head: Checkpoint | None = None
    retained: tuple[Checkpoint, ...] = ()
    retired: tuple[Retired, ...] = ()
    best: tuple[int, int] | None = None
    """(step, epoch) of the retained checkpoint with the highest validation metric."""
    metrics: Metrics = Field(default={})
    links: tuple[Link, ...] = ()
    links_total: int = 0
    history: History | None = None
    usage: dict[Name, Usage] = Field(default={})
    incidents: tuple[Incident, ...] = ()
    incidents_total: int = 0
    failures: tuple[Failure, ...] = ()
    """The different failures since the last commit, newest last."""
    deaths: int = 0
    """Sessions that ended without a release since the last commit."""
    halted: Text | None = None
    """Why the run refuses to go on (P10); None in normal operation."""
    next: Name | None = None
    """The account the last holder proposed as its successor."""
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=MAX_GPUS)] = ()
    """Kinds of GPU that have trained, in the order of their first lease; usage names them by index."""
    archived: Time | None = None
    """When the run was archived; no session may train it from then on."""
    deleted: Time | None = None
    """When it was deleted; it retains nothing and accepts no entry from then on."""
    kept: Annotated[tuple[Kept, ...], Field(max_length=MAX_KEPT)] = ()
    """Checkpoints that passed-over entries may have committed, oldest first."""
    skipped: Annotated[int | None, Field(gt=0, lt=2**53)] = None
    """The highest epoch that slots passed over since the last lease can have begun. Mostly the newest slot's number: no
    epoch exceeds the number of the slot that began it, unless a person's choice raised it."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Check the properties that the rules rely on, because a stranger may have written the state."""
        holder, link = self.holder, self.link
        if holder and not (link and link.epoch == holder.epoch == self.epoch):
            raise ValueError("the holder's link is not the newest one")
        if sum(len(one.intervals) for one in self.usage.values()) > MAX_INTERVALS:
            raise ValueError(f"more than {MAX_INTERVALS} intervals")
        if any(row[0] >= len(self.gpus) for one in self.usage.values() for row in one.by_gpu):
            raise ValueError("usage on a kind of GPU that the run does not know")
        if sum(max(0, len(one.by_gpu) - 1) for one in self.usage.values()) > MAX_FURTHER:
            raise ValueError(f"more than {MAX_FURTHER} further kinds of GPU")
        if not self.bases <= {c.key for c in self.retained if c.lends}:
            raise ValueError("a retained checkpoint borrows from one that is not")
        return self

    @property
    def unread(self) -> frozenset[int]:
        """Epochs whose newest entries a session could not read and passed over. They may have committed checkpoints
        that this state does not name, even if a listing hid these at the time."""
        return frozenset(epoch for span in self.unread_spans for epoch in (span[0], span[1]))

    def may_have_committed(self, epoch: int) -> bool:
        """Whether passed-over slots may have committed a checkpoint of that epoch: one of `unread`, or one that such a
        slot began."""
        return any(first <= epoch < end for first, _, end in self.unread_spans)

    @property
    def unread_spans(self) -> list[tuple[int, int, int]]:
        """For each incident of passed-over slots: the epoch before them, the epoch after them, and the first that began
        later."""
        begun = [link.epoch for link in self.links]
        after = [one.epoch for one in self.incidents if one.cause == PASSED_OVER]
        return [
            (
                max((epoch for epoch in begun if epoch < one), default=0),
                one,
                min((epoch for epoch in begun if epoch > one), default=one + 1),
            )
            for one in after
        ]

    @property
    def next_epoch(self) -> int:
        """The epoch of the next lease: no passed-over slot can have begun it."""
        return max(self.epoch, self.skipped or 0) + 1

    @property
    def link(self) -> Link | None:
        """The newest session's link, open or ended."""
        return self.links[-1] if self.links else None

    def link_of(self, epoch: int) -> Link | None:
        """The link of that session, unless it has left the state (`RunLedger.archived_links` has it then)."""
        return next((link for link in reversed(self.links) if link.epoch == epoch), None)

    @property
    def undamaged(self) -> tuple[Checkpoint, ...]:
        """Retained checkpoints that may become head, oldest first."""
        return tuple(c for c in self.retained if not c.damaged)

    def checkpoint(self, key: tuple[int, int]) -> Checkpoint | None:
        """The retained checkpoint of that (step, epoch)."""
        return next((c for c in self.retained if c.key == key), None)

    @property
    def bases(self) -> set[tuple[int, int]]:
        """Keys of the checkpoints whose files retained ones share; they stay retained as long as these do (P8)."""
        return {c.base for c in self.retained if c.base is not None}

    def whole_bytes(self, checkpoint: Checkpoint) -> int:
        """Most bytes that a retained checkpoint takes on a machine that has fetched it, borrowed files included."""
        base = self.checkpoint(checkpoint.base) if checkpoint.borrows and checkpoint.base else None
        return checkpoint.bytes + (base.bytes if base else 0)

    def committed_by(self, epoch: int) -> bool:
        """Whether the newest epoch, if it is that one, has committed already (a rewind must come before)."""
        return bool(self.links) and self.links[-1].epoch == epoch and self.links[-1].commits > 0
