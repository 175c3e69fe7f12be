"""Everything a session is made of, as values handed in, and what it hands back; does nothing itself."""

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
from relay.core.names import Names
from relay.core.session.timing import Startup
from relay.core.settings.config import Settings
from relay.core.workload import Progress, Workload
from storage.base import Store


@dataclass(frozen=True)
class Plan:
    """What this session is asked to do; none of it decides the state at step n."""

    target_steps: int
    every_steps: int = 500
    every_s: float = 600.0
    """A commit is due every K steps (multiples of the global step) or T seconds, whichever comes first."""
    evaluate_every: int = 4
    """In commits' worth of steps; 0 never evaluates."""
    evaluate_rows: int | None = 128
    keep: Keep = field(default_factory=Keep)
    ttl_s: float = 180.0
    wait_s: float = 0.0
    """How long to wait for a lease that somebody holds (`--wait`)."""
    limits: Limits = field(default_factory=lambda: Limits(0.0))
    grace_s: float = 25.0
    """What SIGTERM and SIGINT leave for the last commit."""
    patience_s: float = 600.0
    """Longest wait for the final upload where no budget says otherwise."""
    workers: int = 4
    """Parallel transfers."""
    report_pace: bool = False
    """Report soon how long a step takes here and how much time is left for steps."""

    @classmethod
    def of(cls, settings: Settings, target_steps: int, limits: Limits, wait_s: float, report_pace: bool) -> Plan:
        """By the relay's settings."""
        return cls(
            target_steps,
            every_steps=settings.checkpoint.every_steps,
            every_s=settings.checkpoint.every_minutes * 60,
            evaluate_every=settings.evaluation.every_commits,
            evaluate_rows=settings.evaluation.rows,
            keep=Keep(settings.checkpoint.keep_last, settings.checkpoint.keep_every),
            ttl_s=settings.lease.ttl_s,
            wait_s=wait_s,
            limits=limits,
            report_pace=report_pace,
        )


@dataclass
class Listener:
    """Receives what a session reports. Every function must return quickly and raise nothing."""

    event: Callable[[SessionEvent], None] = lambda event: None
    """From any thread."""
    progress: Callable[[Progress], None] = lambda progress: None
    held: Callable[[Held], None] = lambda held: None
    """Who is in the way of the lease, at each look."""
    transfer: Transfer = unseen
    """How far a checkpoint is on its way, from any thread."""
    tick: Callable[[], None] = lambda: None
    """Asked all the time while the session waits for the lease."""
    entered: Callable[[], None] = lambda: None
    """The wait is over, however it ended."""


class Observer(Protocol):
    """Shows the run elsewhere while a session trains. Every function must return quickly and raise nothing."""

    def started(self, seq: int, note: Callable[[str], None]) -> None:
        """The lease is held. seq: its slot; `note` records for everybody what could not be shown."""
        ...

    def committed(self) -> None:
        """A commit has landed."""
        ...

    def closed(self, longest_s: float) -> None:
        """The session is over: finish, at most in that time."""
        ...


@dataclass
class Context:
    """One session's surroundings; the command line builds it."""

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
    """Compiled code by way of the store, where this machine allows it and the workload compiles."""
    observer: Observer | None = None
    """What shows this run elsewhere, where somebody asked for that."""
    other_runs: Callable[[], Iterable[RunState]] = lambda: ()
    """Newest states of all other registered runs, read afresh."""
    successor: Callable[[RunState], str | None] = lambda state: None
    """Whom the release proposes as next."""
    desk: Handoff = field(default_factory=lambda: Handoff())

    @property
    def ledger_store(self) -> Store:
        """Where the ledger lies: the store's clock, and what is read beside the log."""
        return self.ledger.store

    @property
    def names(self) -> Names:
        """Where the run's objects lie."""
        return self.ledger.names


@dataclass(frozen=True)
class Handoff:
    """What only the command line knows of where a session runs, and how its report is put into words."""

    provider: str | None = None
    cloud: str | None = None
    quota: Callable[[RunState], Left | None] = lambda state: None
    """What is left of the account's hours, read afresh. Raises StoreError, RelayError, ValueError."""
    words: Callable[[SessionReport], str] = lambda report: ""
    """The report for people, in Markdown."""


def fraction(part: float, whole: float) -> float:
    """part / whole within 0 and 1; 0 of nothing."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


@dataclass(frozen=True)
class Idle:
    """A session found nothing to do, and took no lease: the target is reached, or no checkpoint waits here."""

    work: Literal["train", "push"]
    project: str
    run: str
    step: int
    target_steps: int


@dataclass(frozen=True)
class Outcome:
    """How a session ended."""

    exit_code: Exit
    durable_step: int | None
    """The head's step as far as this session knows; None if it could not read the ledger."""
    from_step: int = 0
    end: str = ""
    """The reason of the release, as in the session's link; empty without a lease."""
    failure: RelayError | None = None
    """What went wrong; None for a planned end."""
    lost: Fenced | None = None
    """How the session learned that its lease was over, also where it had ended by then."""
    asked: str = ""
    """The note of a request to stop, as it was written."""
    spared: str = ""
    """The spot notice that left no time for the last upload."""
    idle: Idle | None = None
    made_step: int | None = None
    """The newest step that it has committed itself; None for none."""
    epoch: int = 0
    commits: int = 0
    certified: Certified = "unknown"
    why: str = ""
    interval_s: float = 0.0
    """Longest time between two committed snapshots (P6: work lost is at most this plus `latency_s`)."""
    latency_s: float = 0.0
    """Longest time from a snapshot to its commit."""
    replaced: int = 0
    """Snapshots that a newer one made unnecessary."""
    stall_s: Sequence[float] = ()
    """By how much each checkpoint delayed training, where that could be measured."""
    train_s: float = 0.0
    """Seconds in ordinary steps."""
    total_s: float = 0.0
    """Seconds since the lease."""
    start_s: float = 0.0
    """Seconds from the start of the process to the lease; a budget counts them."""
    startup: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, from the start of the process to the end of the first step."""
    unsent: Path | None = None
    """A checkpoint that is on this machine only."""

    @property
    def goodput(self) -> float:
        """Share of the session, from the start of its process, that was spent in ordinary steps."""
        return fraction(self.train_s, self.start_s + self.total_s)
