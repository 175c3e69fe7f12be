"""Finds the obstacles to a lease: a live holder (P5), or the account's lease on another run (P12)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from relay.core.clock import Runtime
from relay.core.errors import LeaseHeld, store_errors
from relay.core.lease.heartbeat import newest_sign, sign_of_life
from relay.core.lease.host import HostLocks
from relay.core.ledger import changes, frozen
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import Holder, RunState
from relay.core.ledger.usage import leases_of
from relay.core.names import Names
from storage.base import Store

# --- Waiting until the holder of a run has released it or shows no more signs of life (P5) --------------------------

LATE_S = 60.0
"""A lease may be taken over this long after its holder's latest end, with or without heartbeats."""
POLL_S = 15.0
"""Between two looks at a lease that is held."""
CLOSE_S = 30.0
"""In so many seconds before the holder's latest end, when releases come, the log alone is read every SOON_S."""
SOON_S = 2.0
LONGEST_S = 1e9
"""Upper bound on the seconds that a lease has lasted; its dates may be wrong."""
HEED_S = 0.5
"""Longest time between two checks whether a waiting session should stop."""


@dataclass(frozen=True)
class Held:
    """The current holder, with the times that a countdown shows."""

    holder: Holder
    silent_s: float
    """Since its newest sign of life, by the store's clock."""
    left_s: float
    """Until this lease may be taken, if no sign of life comes."""
    confirming: bool
    """Silent for longer than its TTL (or its sign is that far ahead), and not yet seen to change: read it once more."""
    ends_in_s: float = math.inf
    """Until its latest end; infinite without one."""


class HeldBy(LeaseHeld):
    """Another session is training the run."""

    def __init__(self, state: RunState, held: Held) -> None:
        super().__init__(f"Run {state.project}/{state.run} is being trained by {held.holder.account}.")
        self.project, self.run, self.step = state.project, state.run, state.step
        self.account, self.since = held.holder.account, held.holder.since
        self.silent_s, self.left_s = held.silent_s, held.left_s


class Watch:
    """Signs of life of one holder as a challenger sees them, on its own monotonic clock."""

    def __init__(self) -> None:
        self._seen: tuple[int, float] | None = None
        self._since, self._alive = 0.0, False

    def look(self, holder: Holder, sign: float, store_now: float, mono_now: float) -> Held | None:
        """Evaluate one successful read. None if the holder is dead: silent for TTL and unchanged for TTL/3 of our time.

        The age of a sign from the future is unknown: then it must be unchanged for a whole TTL of our own time.
        """
        if self._seen != (holder.epoch, sign):
            self._alive = self._seen is not None and self._seen[0] == holder.epoch
            self._seen, self._since = (holder.epoch, sign), mono_now
        silent = store_now - sign
        ahead, watched = silent < 0, mono_now - self._since
        left = holder.ttl_s - watched if ahead else max(holder.ttl_s - silent, holder.ttl_s / 3 - watched)
        if holder.latest_end is not None:
            left = min(left, holder.latest_end + LATE_S - store_now)
        if left <= 0 and (ahead or silent > holder.ttl_s or _past_end(holder, store_now)):
            return None
        confirming = abs(silent) > holder.ttl_s and not self._alive
        ends_in = math.inf if holder.latest_end is None else holder.latest_end - store_now
        return Held(holder, max(silent, 0.0), max(left, 0.0), confirming, ends_in)


def blocked_by(
    ledger: RunLedger, runtime: Runtime, locks: HostLocks
) -> Callable[[RunState], Held | changes.TookOver | None]:
    """A check of each state for `vacant`, for a caller that takes no lease."""
    watch = Watch()
    return lambda state: _obstacle(state, ledger, runtime, locks, watch)


def vacant(
    ledger: RunLedger,
    runtime: Runtime,
    free: Callable[[RunState], Held | changes.TookOver | None],
    until: float,
    notice: Callable[[Held], None],
    heed: Callable[[], None],
) -> tuple[RunState, changes.TookOver | None]:
    """Wait until no live session holds the run: the state, and how its holder was found dead, if it has one.

    Waits until the monotonic time `until`, or longer to confirm that a holder is dead. Raises LeaseHeld.
    """
    while True:
        state = ledger.read().state
        found = free(state)
        if not isinstance(found, Held):
            return state, found
        left = until - runtime.monotonic()
        if left <= 0 and not found.confirming:
            raise HeldBy(state, found)
        notice(found)
        pause = min(found.left_s, POLL_S, found.holder.ttl_s / 6)
        now = runtime.monotonic()
        look_at, end = now + max(0.05, pause if found.confirming else min(pause, left)), now + found.ends_in_s
        while now < look_at:
            close = end - CLOSE_S <= now < end
            _sleep(runtime, min(look_at - now, SOON_S if close else max(SOON_S, end - CLOSE_S - now)), heed)
            now = runtime.monotonic()
            if close and now < look_at and ledger.read().state.holder != found.holder:
                break


def _sleep(runtime: Runtime, seconds: float, heed: Callable[[], None]) -> None:
    until = runtime.monotonic() + seconds
    while (left := until - runtime.monotonic()) > 0:
        runtime.sleep(min(left, HEED_S))
        heed()


def _obstacle(
    state: RunState, ledger: RunLedger, runtime: Runtime, locks: HostLocks, watch: Watch
) -> Held | changes.TookOver | None:
    """The live holder; or how the last holder was found dead; None if it released."""
    holder = state.holder
    if holder is None:
        return None
    store = ledger.store
    with store_errors(store, f"Cannot check whether {holder.account} still trains this run"):
        now = store.now()  # before the read: a slow answer must not make the holder look older
        beat = sign_of_life(store, ledger.names, holder.epoch, holder.beat)
        sign = newest_sign(holder.since, beat, now)
        if locks.is_dead(holder.session):
            return _gone(holder, min(sign, now), frozen.DEAD)
        held = watch.look(holder, sign, now, runtime.monotonic())
    if held is not None:
        return held
    return _gone(holder, min(sign, now), frozen.LATE if _past_end(holder, now) else frozen.SILENT)


def _past_end(holder: Holder, now: float) -> bool:
    return holder.latest_end is not None and now > holder.latest_end + LATE_S


def _gone(holder: Holder, sign: float, reason: str) -> changes.TookOver:
    return changes.TookOver(epoch=holder.epoch, reason=reason, seconds=min(max(0.0, sign - holder.since), LONGEST_S))


# --- One account holds at most one lease over all runs (P12). This is a rule for honest people, not a fence. --------


@dataclass(frozen=True)
class Taken:
    """A lease just taken in `run`: dated `since`, visible to other sessions from `landed` on (store's clock)."""

    since: float
    landed: float
    run: str

    def yields_to(self, holder: Holder, run: str) -> bool:
        """Whether the other lease stays: it is older, or was taken before ours was visible."""
        return (holder.since, run) < (self.since, self.run) or self.since < holder.since < self.landed


class TrainsAnother(LeaseHeld):
    """The account holds the lease of another run."""

    def __init__(self, account: str, run: str, since: float) -> None:
        super().__init__(f"Account {account} already trains run {run}.")
        self.account, self.run, self.since = account, run, since


def refuse_second_lease(
    account: str, others: Iterable[RunState], store: Store, locks: HostLocks, mine: Taken | None = None
) -> None:
    """Raises LeaseHeld (73) if the account trains one of the other runs right now; StorageUnreachable (69).

    `mine` is a lease just taken. One that was taken after it landed does not count: its session sees ours and yields.
    """
    for state in leases_of(others, account):
        holder = state.holder
        if holder is None or (mine and not mine.yields_to(holder, state.run)):
            continue
        if _alive(state, holder, store, locks):
            raise TrainsAnother(account, state.run, holder.since)


def _alive(state: RunState, holder: Holder, store: Store, locks: HostLocks) -> bool:
    if locks.is_dead(holder.session):
        return False
    with store_errors(store, f"Cannot check whether {holder.account} trains run {state.run}"):
        now = store.now()  # before the read: a slow answer must not make the other session look dead
        beat = sign_of_life(store, Names(state.project, state.run), holder.epoch, holder.beat)
    age = now - newest_sign(holder.since, beat, now)  # a sign far ahead is of a clock that was corrected, not of life
    return abs(age) <= holder.ttl_s and (holder.latest_end is None or now <= holder.latest_end)
