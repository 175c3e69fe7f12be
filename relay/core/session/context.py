"""The input of a session (plan, listener, stores, workload) and its outcome, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from relay.core.budget import Limits
from relay.core.checkpoint.compilecache import WarmStart
from relay.core.checkpoint.local import LocalFolder
from relay.core.checkpoint.packing import Facts
from relay.core.checkpoint.retention import Keep
from relay.core.clock import Runtime
from relay.core.errors import Exit, Fenced, RelayError
from relay.core.events import SessionEvent, Transfer, unseen
from relay.core.lease.blockers import Held
from relay.core.lease.host import HostLocks
from relay.core.lease.signals import StopSignal
from relay.core.ledger.fields import Certified
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.sessionreport import Left, SessionReport
from relay.core.ledger.state import RunState
from relay.core.ledger.target import Rule
from relay.core.names import Names
from relay.core.session.timing import Startup
from relay.core.settings.config import Settings
from relay.core.workload import Progress, Reading, Workload
from storage.base import Store


@dataclass(frozen=True)
class Plan:
    """The task of this session. No field affects the state at step n."""

    target_steps: int
    """Until the lease: the number of steps that this session brings. Under the lease: the run's target."""
    target_rule: Rule = Rule.RAISE
    """The effect of `target_steps` on a run that has a target."""
    until_step: int | None = None
    """End this session at that step, if it comes before the target; the run's target stays."""
    every_steps: int = 500
    every_s: float = 600.0
    """A commit is due every K steps (multiples of the global step) or T seconds, whichever comes first."""
    evaluate_every: int = 4
    """In multiples of `every_steps`; 0 never evaluates."""
    evaluate_rows: int | None = 128
    test_rows: int = 0
    """Rows of the reported split to evaluate at the target; 0: none."""
    test_also: tuple[Reading, ...] = ()
    """Other readings to evaluate on them."""
    keep: Keep = field(default_factory=Keep)
    ttl_s: float = 180.0
    wait_s: float = 0.0
    """How long to wait for a held lease (`--wait`)."""
    limits: Limits = field(default_factory=lambda: Limits(0.0))
    grace_s: float = 25.0
    """Seconds for the last commit after SIGTERM or SIGINT."""
    patience_s: float = 600.0
    """Longest wait for the final upload without a budget."""
    workers: int = 4
    """Parallel transfers."""
    report_pace: bool = False
    """Report after a few steps how long a step takes on this machine and how much time is left for steps."""
    crashes_halt: bool = True
    """Whether two equal crashes halt the run also if their sessions committed nothing. Not in a user's loop (P13)."""
    note: str = ""
    """A person's remark on this session, recorded in the ledger under the lease."""

    @property
    def last_step(self) -> int:
        """The step at which this session ends at the latest."""
        return self.target_steps if self.until_step is None else min(self.target_steps, self.until_step)

    @classmethod
    def of(
        cls,
        settings: Settings,
        target_steps: int,
        rule: Rule,
        limits: Limits,
        wait_s: float,
        report_pace: bool,
        note: str,
    ) -> Plan:
        """The plan for the relay's settings."""
        return cls(
            target_steps,
            target_rule=rule,
            until_step=settings.until_step,
            every_steps=settings.checkpoint.every_steps,
            every_s=settings.checkpoint.every_minutes * 60,
            evaluate_every=settings.evaluation.every_commits,
            evaluate_rows=settings.evaluation.rows,
            test_rows=settings.evaluation.test_rows,
            test_also=tuple(map(Reading.of, settings.evaluation.test_also)),
            keep=Keep(settings.checkpoint.keep_last, settings.checkpoint.keep_every),
            ttl_s=settings.lease.ttl_s,
            wait_s=wait_s,
            limits=limits,
            report_pace=report_pace,
            note=note,
        )


@dataclass
class Listener:
    """Receives a session's events. Every function must return quickly and raise nothing."""

    event: Callable[[SessionEvent], None] = lambda event: None
    """Called from any thread."""
    progress: Callable[[Progress], None] = lambda progress: None
    held: Callable[[Held], None] = lambda held: None
    """The current holder of the lease, at each poll while waiting."""
    transfer: Transfer = unseen
    """Progress of a checkpoint's transfer. Called from any thread."""
    tick: Callable[[], None] = lambda: None
    """Called at each poll while the session waits for the lease."""
    entered: Callable[[], None] = lambda: None
    """Called when the wait is over, with or without the lease."""


class Observer(Protocol):
    """Shows the run in another place while a session trains. Every function must return quickly and raise nothing."""

    def started(self, seq: int, note: Callable[[str], None]) -> None:
        """The lease is held. `seq`: its slot. `note` records in the ledger that something could not be shown."""
        ...

    def committed(self) -> None:
        """A commit has landed."""
        ...

    def closed(self, longest_s: float) -> None:
        """The session is over: finish within that many seconds."""
        ...


class Meter(Protocol):
    """Measures the machine while a session trains. Every function must return quickly and raise nothing."""

    def start(self) -> None:
        """The lease is held."""
        ...

    def take(self) -> Mapping[str, float]:
        """The measurements since the last call, for the metrics of a commit."""
        ...

    def stop(self) -> None:
        """The session trains no more."""
        ...


@dataclass
class Context:
    """Everything one session needs. The caller builds it, usually with relay/people/joining.py."""

    runtime: Runtime
    ledger: RunLedger
    heartbeat_store: Store
    """The ledger's store through a client without retries."""
    checkpoint_store: Store
    workload: Workload
    facts: Facts
    session: str
    """32 random hexadecimal digits, new for each process."""
    account: str
    plan: Plan
    local_folder: LocalFolder
    locks: HostLocks
    signal: StopSignal = field(default_factory=StopSignal)
    listener: Listener = field(default_factory=Listener)
    startup: Startup = field(default_factory=Startup)
    warm: WarmStart | None = None
    """Compiled code from the store, if this machine allows it and the workload compiles."""
    observer: Observer | None = None
    """Shows this run in another place; None unless requested."""
    other_runs: Callable[[], Iterable[RunState]] = lambda: ()
    """Newest states of all other registered runs, read again at each call."""
    successor: Callable[[RunState], str | None] = lambda state: None
    """The account that the release proposes as next."""
    desk: Handoff = field(default_factory=lambda: Handoff())
    meter: Meter | None = None
    """Measures the machine; None if nothing can be measured."""

    @property
    def ledger_store(self) -> Store:
        """The ledger's store, for its clock and for objects outside the log."""
        return self.ledger.store

    @property
    def names(self) -> Names:
        """Names of the run's objects."""
        return self.ledger.names

    @property
    def tests(self) -> list[str]:
        """The readings to evaluate at the target, as their results are named; empty without a test."""
        return self.workload.measures.splits.tests(self.plan.test_also) if self.plan.test_rows else []


@dataclass(frozen=True)
class Handoff:
    """Facts that only the application knows: the machine's provider, the remaining hours, the wording of the report."""

    provider: str | None = None
    cloud: str | None = None
    quota: Callable[[RunState], Left | None] = lambda state: None
    """The account's remaining hours, read again at each call. Raises StoreError, RelayError, ValueError."""
    words: Callable[[SessionReport], str] = lambda report: ""
    """The report as Markdown."""


def fraction(part: float, whole: float) -> float:
    """part / whole, limited to 0..1; 0 if `whole` is not positive."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


@dataclass(frozen=True)
class Idle:
    """A session found nothing to do and took no lease: its last step is reached, or nothing here is unsent."""

    work: Literal["train", "push"]
    project: str
    run: str
    step: int
    target_steps: int
    last_step: int
    """`Plan.last_step`: the target, or the earlier step at which the session was to end."""


@dataclass(frozen=True)
class Outcome:
    """How a session ended."""

    exit_code: Exit
    durable_step: int | None
    """The head's step as this session last read it; None if it could not read the ledger."""
    from_step: int = 0
    end: str = ""
    """The reason of the release, as in the session's link; empty without a lease."""
    failure: RelayError | None = None
    """The error that ended the session; None for a planned end."""
    lost: Fenced | None = None
    """How the session learned that it had lost its lease, also if it had already ended."""
    asked: str = ""
    """The note of a request to stop, as written."""
    spared: str = ""
    """The spot notice that left too little time for the last upload."""
    idle: Idle | None = None
    untested: Sequence[str] = ()
    """Readings of the test at the target that have no result; the next session makes it."""
    made_step: int | None = None
    """The newest step that this session committed; None if none."""
    epoch: int = 0
    commits: int = 0
    certified: Certified = "unknown"
    why: str = ""
    interval_s: float = 0.0
    """Longest time between two committed snapshots (P6: at most this plus `latency_s` of work is lost)."""
    latency_s: float = 0.0
    """Longest time from a snapshot to its commit."""
    replaced: int = 0
    """Number of snapshots that a newer one replaced before upload."""
    stall_s: Sequence[float] = ()
    """Seconds by which each checkpoint delayed training, if measured."""
    train_s: float = 0.0
    """Seconds in ordinary steps."""
    total_s: float = 0.0
    """Seconds since the lease."""
    start_s: float = 0.0
    """Seconds from process start to the lease, without the wait for it; the budget includes them."""
    waited_s: float = 0.0
    """Seconds in which another session held the lease; the budget includes them."""
    startup: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, from process start to the end of the first step."""
    unsent: Path | None = None
    """Folder of a checkpoint that exists on this machine only."""

    @property
    def goodput(self) -> float:
        """Share of the session, from process start and without the wait for the lease, spent in ordinary steps."""
        return fraction(self.train_s, self.start_s + self.total_s)
