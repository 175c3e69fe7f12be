"""One account holds at most one lease over all runs (P12): a rule among honest people, not a fence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relay.core.errors import LeaseHeld, store_errors
from relay.core.lease.heartbeat import newest_sign, sign_of_life
from relay.core.lease.samehost import HostLocks
from relay.core.ledger.state import Holder, RunState
from relay.core.ledger.usage import leases_of
from relay.core.names import Names
from storage.base import Store


@dataclass(frozen=True)
class Taken:
    """A lease just taken in `run`: dated `since`, and to be seen by others from `landed` on (store's clock)."""

    since: float
    landed: float
    run: str

    def yields_to(self, holder: Holder, run: str) -> bool:
        """Whether the other one stays: it is older, or was taken while it could not see ours."""
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

    With `mine`, a lease just taken, one that was taken after it landed does not count: that one sees ours and yields.
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
    with store_errors(store, f"Cannot tell whether {holder.account} trains run {state.run}"):
        now = store.now()  # before the look: a slow answer must not make the other session look dead
        beat = sign_of_life(store, Names(state.project, state.run), holder.epoch, holder.beat)
    age = now - newest_sign(holder.since, beat, now)  # a sign far ahead is of a clock that was corrected, not of life
    return abs(age) <= holder.ttl_s and (holder.latest_end is None or now <= holder.latest_end)
