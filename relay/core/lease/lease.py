"""Takes the lease of a run and writes under it. The append of the lease entry decides who wins (P5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from relay.core.clock import Runtime
from relay.core.errors import Fenced, LeaseHeld, RelayError, store_errors
from relay.core.lease.blockers import Held, blocked_by, vacant
from relay.core.lease.heartbeat import place_of_beats
from relay.core.lease.host import HostLocks
from relay.core.ledger import changes
from relay.core.ledger.atrest import refuse_halted
from relay.core.ledger.chain import AnyChange, Intent
from relay.core.ledger.ledger import RunLedger, View, check_fence
from relay.core.ledger.overlooked import refuse_overlooked
from relay.core.ledger.state import RunState
from relay.core.ledger.target import Rule, target_after


@dataclass(frozen=True)
class LeaseRequest:
    """A session's request."""

    session: str
    account: str
    ttl_s: float
    target_steps: int
    target_rule: Rule = Rule.RAISE
    """The effect of `target_steps` on a run that has a target."""
    ends_in_s: float | None = None
    """Seconds until this session ends at the latest."""
    gpu: str | None = None
    """Short name of the GPU that it trains on (relay/core/gpus.py). None: unknown, or the session does not train."""


class Lease:
    """The right to write under one epoch; appends one change at a time."""

    def __init__(
        self,
        ledger: RunLedger,
        runtime: Runtime,
        request: LeaseRequest,
        view: View,
        taken_at: float,
        target_before: int = 0,
    ) -> None:
        self.ledger, self.session, self.account = ledger, request.session, request.account
        self.ttl_s, self.epoch, self.taken_at = request.ttl_s, view.state.epoch, taken_at
        self.append_s = runtime.monotonic() - taken_at
        """Seconds until the lease entry landed; other sessions could not see it before."""
        self.view = view
        """The newest view this session has seen."""
        self.target_before = target_before
        """The run's target before this lease; 0 if it had none."""
        self.own_state = view.state
        """The newest state of this session's own epoch: the one that it trained on; later epochs do not count."""
        self.lost: Fenced | None = None
        """The error that ended this lease before its release, once any thread of this session has met it."""
        self._runtime, self._lock = runtime, runtime.lock()
        self._releasing = False

    @property
    def state(self) -> RunState:
        return self.view.state

    @property
    def seconds(self) -> float:
        """Seconds since the lease, for usage (P12)."""
        return max(0.0, self._runtime.monotonic() - self.taken_at)

    def append(
        self,
        kind: str,
        build: Callable[[RunState], AnyChange],
        intent: Intent[RunState] | None = None,
        give_up: Callable[[], bool] = lambda: False,
    ) -> RunState:
        """Append one change under this epoch. Raises Fenced (76), Refused (65), Unsettled (74), StorageUnreachable."""
        with self._lock, self._noticing(kind):
            self._releasing = self._releasing or kind == "release"
            return self._see(
                self.ledger.append(
                    kind,
                    build,
                    session=self.session,
                    account=self.account,
                    epoch=self.epoch,
                    intent=intent,
                    give_up=give_up,
                )
            )

    def note(self, incident: changes.Noted) -> RunState:
        """Record an incident under this epoch. Raises as `append` does."""
        return self.append("incident", lambda state: incident)

    def refresh(self) -> RunState:
        """Read the tail. Raises StorageUnreachable (69), BadData (65)."""
        with self._lock:
            return self._see(self.ledger.read())

    def superseded(self) -> bool:
        """Whether the tail shows a later epoch, or that another session ended this one. Raises StorageUnreachable."""
        self.refresh()
        return self.lost is not None

    def _see(self, view: View) -> RunState:
        """Note a view, and whether it shows that this lease is over before its release."""
        self.view = view
        if view.state.epoch == self.epoch:
            self.own_state = view.state
        if not self._releasing:
            try:
                check_fence(view.state, self.session, self.epoch)
            except Fenced as fence:
                self.lost = fence
        return view.state

    @contextmanager
    def _noticing(self, kind: str = "") -> Iterator[None]:
        try:
            yield
        except Fenced as fence:
            if kind == "release" or not self._releasing:  # otherwise it may be this session's own release
                self.lost = fence
            with suppress(RelayError):
                self._see(self.ledger.read())  # the session that took over may have passed over this one's commit
            raise


def acquire(
    ledger: RunLedger,
    runtime: Runtime,
    locks: HostLocks,
    request: LeaseRequest,
    *,
    wait_s: float = 0.0,
    notice: Callable[[Held], None] = lambda held: None,
    heed: Callable[[], None] = lambda: None,
) -> Lease:
    """Take the lease, waiting up to `wait_s` seconds, or longer to confirm that a holder is dead.

    `notice` gets the holder during the wait. `heed` is called often until the lease is appended, and raises to end it.
    Raises LeaseHeld (73) naming the holder; BadData (65) for a halted run, or for a commit that was passed over and is
    not kept; TargetBehind (78); StorageUnreachable (69).
    """
    began = runtime.monotonic()
    until, obstacle = began + wait_s, blocked_by(ledger, runtime, locks)
    end = began + (math.inf if request.ends_in_s is None else request.ends_in_s)
    ledger.chain.prover.heed = heed
    refuse_overlooked(ledger, ledger.validate())

    def free(state: RunState) -> Held | changes.TookOver | None:
        refuse_halted(state)
        found = obstacle(state)
        heed()
        return found

    while True:
        state, gone = vacant(ledger, runtime, free, until, notice, heed)
        lease = _take(ledger, runtime, request, state, gone, lambda: runtime.monotonic() >= end)
        if lease is not None:
            return lease


def _take(
    ledger: RunLedger,
    runtime: Runtime,
    request: LeaseRequest,
    seen: RunState,
    gone: changes.TookOver | None,
    too_late: Callable[[], bool],
) -> Lease | None:
    """Append the lease; None if another session was faster."""
    taken_at, store = runtime.monotonic(), ledger.store
    with store_errors(store, "Cannot read the store's clock"):
        latest_end = None if request.ends_in_s is None else store.now() + request.ends_in_s
        beat = place_of_beats(store)
    before = 0

    def build(state: RunState) -> changes.Lease:
        refuse_halted(state)  # it may have been halted or archived since it was read
        if state.epoch != seen.epoch or (state.holder is None) != (gone is None):
            raise _Faster
        nonlocal before
        before = state.target_steps
        return changes.Lease(
            ttl_s=request.ttl_s,
            latest_end=latest_end,
            target_steps=target_after(state, request.target_steps, request.target_rule),
            took_over=gone,
            beat=beat,
            gpu=request.gpu,
        )

    try:
        view = ledger.append("lease", build, session=request.session, account=request.account, give_up=too_late)
    except (_Faster, Fenced, LeaseHeld):
        return None
    return Lease(ledger, runtime, request, view, taken_at, before)


class _Faster(Exception):
    """The state has changed since the challenger read it."""
