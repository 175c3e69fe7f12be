"""The thread that commits snapshots during training: one upload in flight, one snapshot waiting.

Memory: at most the snapshot in flight (freed once it is on this machine's disk), the waiting one, and the one being
taken. Disk: the newest committed checkpoint, the one in flight, and one that waits at the end; during a restore, the
download and this machine's copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from relay.core.checkpoint.local import LocalCheckpoint
from relay.core.clock import Event, Runtime, Task
from relay.core.errors import RelayError, StorageUnreachable, UploadFailed
from relay.core.events import SessionEvent, Trouble
from relay.core.ledger.chain import Intent
from relay.core.ledger.passing import Blocked
from relay.core.ledger.sessionreport import MetricsRow
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.resources import exhausted
from relay.core.workload import Snapshot, StepDigest
from storage.base import StoreError

FIRST_WAIT_S, LONGEST_WAIT_S, FINISHING_WAIT_S = 1.0, 60.0, 5.0


@dataclass(frozen=True)
class CommitRecord:
    """The manifest's content besides the files. Fixed when it is first sent: an attempt whose answer was lost may land
    after the commit, and other bytes would then damage a retained checkpoint."""

    packed: LocalCheckpoint
    next: StepDigest | None
    metric: float | None


@dataclass
class Item:
    """One snapshot on its way to a commit, with the results so far, so that a retry continues where it stopped."""

    step: int
    snapshot: Snapshot | None
    """None once it is saved."""
    taken_at: float = 0.0
    """Monotonic time of the snapshot."""
    metrics: dict[str, float] = field(default_factory=dict)
    rows: tuple[MetricsRow, ...] = ()
    """The metrics of training since the newest commit; monotonic seconds."""
    metric: float | None = None
    next: StepDigest | None = None
    ready: Event | None = None
    """The append waits for it: metrics and the next step's digest are there, or will never come."""
    packed: LocalCheckpoint | None = None
    evaluated_rows: int | None = None
    """Validation rows of its evaluation, if it was evaluated."""
    record: CommitRecord | None = None
    token: str = ""
    """Token of its folder in the store; '' for the plain one."""
    checkpoint: Checkpoint | None = None
    intent: Intent[RunState] | None = None
    abandoned: bool = False
    """Stop working on it; checked between files and before the append."""
    committed: bool = False
    heed: Callable[[], None] = lambda: None
    """Called between pieces of the upload; raises to end it."""


class Abandoned(Exception):
    """The item was abandoned during its commit."""


class CommitterDied(RelayError):
    """An unexpected error ended the committing thread, at the snapshot of `step`: a crash by P10."""

    def __init__(self, step: int) -> None:
        super().__init__("A bug in this program ended the committing thread (see above).")
        self.step = step


class Pipeline(Protocol):
    """Makes one item durable (relay/core/checkpoint/commit.py)."""

    def commit(self, item: Item) -> None:
        """Do the remaining work. Raises StoreError, OSError, StorageUnreachable, UploadFailed and errors of a machine
        that lacks memory or threads (worth a retry), Abandoned, or another RelayError (the session is over)."""
        ...

    def committed(self, item: Item) -> None:
        """Housekeeping after a commit."""
        ...

    def forget(self, item: Item) -> None:
        """A newer item replaced it: remove it from this machine."""
        ...


class Committer:
    """The thread between training and storage."""

    def __init__(
        self,
        runtime: Runtime,
        pipeline: Pipeline,
        may_start: Callable[[], bool],
        event: Callable[[SessionEvent], None],
    ) -> None:
        """`may_start`: whether an upload that starts now ends before the final snapshot."""
        self._runtime, self._pipeline, self._may_start = runtime, pipeline, may_start
        self._event = event
        self._wake, self._hurry, self._lock = runtime.event(), runtime.event(), runtime.lock()
        self._task: Task | None = None
        self._wait_s = FIRST_WAIT_S
        self._waiting: Item | None = None
        self._inflight: Item | None = None
        self._begun = 0.0
        self._finishing = self._over = False
        self._failure: RelayError | None = None
        self.trouble: Exception | None = None
        """The newest storage error; None after a successful commit."""
        self.blocked = False
        """Whether the newest attempt failed because no commit of this session can land at the moment."""
        self.replaced = 0
        """Number of snapshots that a newer one replaced."""
        self.committed_step = 0
        """The newest committed step that this session knows of, 0 for none."""

    def start(self) -> None:
        self._task = self._runtime.spawn("committer", self._run)

    @property
    def failure(self) -> RelayError | None:
        """The error that ended all commits of this session (fenced, refused, damaged), or None."""
        if self._failure is None and not self._over and self._task is not None and not self._task.is_alive():
            self._failure = CommitterDied(self._inflight.step if self._inflight else 0)
        return self._failure

    def offer(self, item: Item) -> None:
        """Hand over a snapshot; it replaces a waiting one, never the one in flight."""
        with self._lock:
            replaced, self._waiting = self._waiting, item
        self.replaced += replaced is not None
        self._wake.set()

    def running_s(self) -> float | None:
        """Seconds since the upload in flight began, None without one."""
        return self._runtime.monotonic() - self._begun if self._inflight is not None else None

    def abandon_inflight(self) -> None:
        """Make room for the final snapshot: the upload in flight stops at the next file."""
        with self._lock:
            if self._inflight is not None:
                self._inflight.abandoned = True

    def drain(self, until: Callable[[], float], at_once: Callable[[], bool]) -> bool:
        """Wait until every snapshot handed over is committed. False at `until()` (monotonic), on failure, or once
        `at_once()` is true."""
        self._finishing = True
        self._wake.set()
        self._hurry.set()
        while self._busy() and self.failure is None:
            left = until() - self._runtime.monotonic()
            if left <= 0 or at_once():
                return False
            self._runtime.sleep(min(max(left, 0.01), 0.05))
        return self.failure is None

    def settle(self, until: Callable[[], float]) -> None:
        """Wait for the housekeeping after the last commit, until `until()` (monotonic) at most."""
        while self._inflight is not None and self._runtime.monotonic() < until():
            self._runtime.sleep(0.02)

    def close(self) -> list[Item]:
        """Stop committing. Returns the uncommitted items, which this session will not commit any more."""
        with self._lock:
            self._over = True
            left = [item for item in (self._inflight, self._waiting) if item is not None and not item.committed]
            for item in left:
                item.abandoned = True
            self._waiting = None
        self._wake.set()
        self._hurry.set()
        return left

    def _busy(self) -> bool:
        with self._lock:
            under_way = self._inflight is not None and not self._inflight.committed
            return under_way or self._waiting is not None

    def _run(self) -> None:
        while not self._over and self._failure is None:
            item = self._take()
            if item is None:
                self._wake.wait(1.0)
                self._wake.clear()
                continue
            self._bring_home(item)
            with self._lock:
                self._inflight = None

    def _take(self) -> Item | None:
        """The waiting snapshot, unless its upload would still run when the final one is due."""
        if not self._finishing and not self._may_start():
            return None
        with self._lock:
            item, self._waiting = self._waiting, None
            self._inflight = item
            self._begun = self._runtime.monotonic()
        return item

    def _bring_home(self, item: Item) -> None:
        """Commit the item, with retries until a newer one waits."""
        while not self._try(item):
            self._hurry.wait(min(self._wait_s, FINISHING_WAIT_S) if self._finishing else self._wait_s)
            self._hurry.clear()
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
            if self._over:
                return
            with self._lock:
                newer = self._waiting is not None
            if newer:
                self.replaced += 1
                self._pipeline.forget(item)
                return

    def _try(self, item: Item) -> bool:
        """One attempt; False if a retry may help."""
        try:
            self._pipeline.commit(item)
        except Abandoned:
            if not self._over:
                self._pipeline.forget(item)
            return True
        except (StoreError, StorageUnreachable, UploadFailed, OSError) as error:
            return self._note(error)
        except RelayError as error:
            self._failure = error
            return True
        except Exception as error:
            if (limit := exhausted(error)) is None:
                raise
            return self._note(limit)
        item.committed, self.trouble, self.blocked, self._wait_s = True, None, False, FIRST_WAIT_S
        self.committed_step = item.step
        try:
            self._pipeline.committed(item)
        except Exception as error:  # noqa: BLE001 - the commit has landed, and no error of cleaning may end the session
            self._event(Trouble("cleaning", error))
        return True

    def _note(self, error: Exception) -> bool:
        self.blocked = isinstance(error, Blocked)
        if self.trouble is None or str(error) != str(self.trouble):
            self._event(Trouble("commit", error))
        self.trouble = error
        return False
