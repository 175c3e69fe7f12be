"""A run's small state, as every entry carries it, so that reading the newest two suffices (P4); changes nothing."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from relay.core.ledger.fields import (
    Certified,
    Digest,
    Epoch,
    Exact,
    Gpu,
    Id,
    Kept,
    Line,
    Metrics,
    Row,
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
    """What may name a heartbeat by its Ref; it says nothing of that on stores where its name will do."""

    added: ClassVar[tuple[str, ...]] = ADDED["Named"]

    beat: Exact | None = None
    """The Ref under which the session's heartbeats lie, where names do not find objects."""


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
    """Key of the checkpoint that holds the files it shares with others: its own where it lends them, an earlier one's
    where it borrows them. None: it shares none."""

    @property
    def key(self) -> tuple[int, int]:
        """(step, epoch): uploaded at most once, never overwritten."""
        return self.step, self.epoch

    @property
    def folder(self) -> str:
        """Prefix of its own files: of another folder with its key, none is its."""
        return self.manifest.removesuffix(MANIFEST)

    @property
    def aside(self) -> bool:
        """Whether its folder has a token, which programs before format 5 do not know."""
        return has_token(self.manifest)

    @property
    def lends(self) -> bool:
        """Whether later checkpoints may name files of it."""
        return self.base == self.key

    @property
    def borrows(self) -> bool:
        """Whether it names files of an earlier one."""
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
    """Since the lease, as far as told by its newest commit, its release or its successor."""
    ended: Time | None = None
    end: Line = OPEN
    gpu: Gpu | None = None
    """What it trained on; None: not told, as by every session of the first version."""


class Usage(Sparing):
    """What one account has given to this run. Intervals are [start, end] unix seconds of the last 15 days."""

    added: ClassVar[tuple[str, ...]] = ADDED["Usage"]

    sessions: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Lifetime total of ended sessions; the open one is counted live by whoever reads (P12)."""
    intervals: tuple[tuple[int, int], ...] = ()
    by_gpu: tuple[tuple[Row, Whole, Whole], ...] = ()
    """(place in the run's `gpus`, seconds of ended sessions, steps) of each kind; what is missing is not told."""


class Incident(Strict):
    """Something a person should know of."""

    at: Time
    epoch: Epoch
    step: Step
    account: Name | None
    cause: Line
    text: Text


class Failure(Strict):
    """P10: what failed, where, in what surroundings; two equal ones without a commit between halt the run."""

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
    """Where older links lie: an immutable object that also names its own predecessor."""

    ref: Exact
    sha256: Digest
    links: int
    """How many links it and its predecessors hold together."""


class RunState(Sparing):
    """All that a newcomer must know of a run."""

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
    """Kinds that have trained, in the order of their first lease; usage names them by their place."""
    archived: Time | None = None
    deleted: Time | None = None
    """Since when nobody may train it; since when it retains nothing and takes no entry."""
    kept: Annotated[tuple[Kept, ...], Field(max_length=MAX_KEPT)] = ()
    """Checkpoints that entries which were passed over may have committed, oldest first."""
    skipped: Annotated[int | None, Field(gt=0, lt=2**53)] = None
    """The highest epoch that slots passed over since the last lease can have begun: mostly the number of the newest of
    them, for no epoch is larger than the number of the slot that began it, unless a person's choice raised it."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """What the rules rely on, for a state that somebody else wrote."""
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
        """Epochs whose newest entries somebody could not read and passed over: they may have committed what no entry
        of this state names, also where a listing hid it then."""
        return frozenset(epoch for span in self.unread_spans for epoch in (span[0], span[1]))

    def may_have_committed(self, epoch: int) -> bool:
        """Whether slots that were passed over may have committed a checkpoint of that epoch: one of `unread`, or one
        that such a slot began."""
        return any(first <= epoch < end for first, _, end in self.unread_spans)

    @property
    def unread_spans(self) -> list[tuple[int, int, int]]:
        """For each incident of slots that were passed over: the epoch before them, the one after them, and the first
        that began later."""
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
        """That the next lease takes: no slot that was passed over can have begun it."""
        return max(self.epoch, self.skipped or 0) + 1

    @property
    def link(self) -> Link | None:
        """The newest session's link, open or ended."""
        return self.links[-1] if self.links else None

    def link_of(self, epoch: int) -> Link | None:
        """That session's link, unless it has left the state (`RunLedger.archived_links` knows it then)."""
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
        """Keys of the checkpoints whose files retained ones share: retained as long as these are (P8)."""
        return {c.base for c in self.retained if c.base is not None}

    def whole_bytes(self, checkpoint: Checkpoint) -> int:
        """What a retained checkpoint takes at most on a machine that has fetched it: what it borrows is counted too."""
        base = self.checkpoint(checkpoint.base) if checkpoint.borrows and checkpoint.base else None
        return checkpoint.bytes + (base.bytes if base else 0)

    def committed_by(self, epoch: int) -> bool:
        """Whether the newest epoch, if it is that one, has committed already (a rewind must come before)."""
        return bool(self.links) and self.links[-1].epoch == epoch and self.links[-1].commits > 0
