"""A run at one moment, as status, report and planning show it. Reads no store and no clock."""

from __future__ import annotations

from dataclasses import dataclass

from relay.core.ledger.finaltest import asked_in_vain
from relay.core.ledger.state import Holder, Link, RunState
from relay.people.accountstate import Why
from relay.people.periods import Reset
from relay.people.quota import Quota

STOPPED = ("halted", "archived", "deleted")
"""Phases in which no session may train."""
LINKS_FOR_ETA = 10


@dataclass(frozen=True)
class AccountRow:
    """One registered account, as people see it."""

    id: str
    label: str
    state: str
    """ready, active, cooling, unconfirmed, quota_exceeded, blocked … (relay/people/accountstate.py)"""
    steps: int = 0
    sessions: int = 0
    seconds: float = 0.0
    """Session time given to all registered runs, the open session included. `steps` and `sessions` count the same."""
    quota: Quota | None = None
    """None if neither the provider nor the person named hours."""
    until: float | None = None
    """When `state` ends by itself (store's clock); None if only by hand."""
    why: Why | None = None
    """The reason of the state; None for a ready account."""
    owner: str = ""
    provider: str = "unknown"
    tier: str | None = None
    gpu: str | None = None
    """As declared by the person. Links and usage hold the measured one."""
    zone: str | None = None
    """IANA zone of the person."""
    availability: str | None = None
    """When the person is available, in that zone, as written (relay/people/availability.py parses it)."""
    confirmed: bool = True
    """False if the provider's terms require the participant's confirmation for this run and it is missing."""
    session_minutes: float | None = None
    """Longest session: as declared, otherwise from the provider's record."""
    weekly_hours: float | None = None
    """As declared, otherwise from the provider's record."""
    reset: Reset | None = None
    """The weekly reset of its hours: its own rule, otherwise its provider's; None without one."""


@dataclass(frozen=True)
class RunStatus:
    """Everything that status and report show, read at one moment."""

    project: str
    run: str
    target_steps: int
    """The configured target; a run that has been trained stores its own."""
    now: float
    """Unix seconds by the ledger store's clock; used for ages and the lease's expiry only."""
    state: RunState | None = None
    sign_of_life: float | None = None
    """The holder's newest lease or heartbeat (store's clock)."""
    accounts: tuple[AccountRow, ...] = ()
    clock_is_local: bool = False
    """Whether `now` is this machine's clock, because reading the store's clock would need a write (P1)."""
    skew_s: float | None = None
    """Seconds by which this machine's clock is at least ahead of the store's; None if unknown."""
    store: str = ""
    """Address of the ledger's store, without secrets."""
    by_script: bool = False
    """Whether the run's own script trains it, not a command of this program."""
    missing: str = ""
    """If the run has not begun in the store: a description of the store's contents."""

    @property
    def holder(self) -> Holder | None:
        """The session in the state, also if its lease has expired."""
        return self.state.holder if self.state else None

    @property
    def step(self) -> int:
        """The durable step."""
        return self.state.step if self.state else 0

    @property
    def target(self) -> int:
        """The newest target that a session trained for, otherwise the configured one."""
        return (self.state.target_steps if self.state else 0) or self.target_steps

    @property
    def expires_at(self) -> float | None:
        """Newest sign of life plus TTL (store's clock); None without a lease."""
        if self.holder is None:
            return None
        return max(self.holder.since, self.sign_of_life or 0.0) + self.holder.ttl_s

    @property
    def training(self) -> bool:
        """Whether a session holds a lease that has not expired."""
        return self.expires_at is not None and self.expires_at > self.now

    @property
    def phase(self) -> str:
        """new, idle, training, finished, halted, archived or deleted."""
        if self.state is None:
            return "new"
        if self.state.archived is not None:
            return "archived" if self.state.deleted is None else "deleted"
        if self.state.halted is not None:
            return "halted"
        if self.training:
            return "training"
        if self.state.head is None and not self.state.links_total:
            return "new"
        return "finished" if self.step >= self.target > 0 else "idle"

    @property
    def untested(self) -> list[str]:
        """Readings of the test at the target that the last commit was to carry, and that have no result."""
        return asked_in_vain(self.state, self.target) if self.state else []

    @property
    def stopped(self) -> bool:
        """Whether no session may train the run; it then has no estimated end."""
        return self.phase in STOPPED


def seconds_left(view: RunStatus) -> tuple[float, float] | None:
    """(shortest, longest) training time to the target, by the fastest and slowest recent session; None if unknown.

    Also None for a run that no session may train.
    """
    if view.stopped:
        return None
    links = view.state.links[-LINKS_FOR_ETA:] if view.state else ()
    rates = [rate for link in links if (rate := _rate(link)) > 0]
    if not rates:
        return None
    left = max(0, view.target - view.step)
    return left / max(rates), left / min(rates)


def _rate(link: Link) -> float:
    """Steps per second of one session. Uses the seconds it gave: a dead one may have been taken over days later."""
    return (link.to_step - link.from_step) / link.seconds if link.seconds > 0 else 0.0
