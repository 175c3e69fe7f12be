"""All that a reader may want to know of a run at one moment; reads no store and no clock."""

from __future__ import annotations

from dataclasses import dataclass

from relay.core.ledger.state import Holder, Link, RunState
from relay.people.accountstate import Why
from relay.people.periods import Reset
from relay.people.quota import Quota

STOPPED = ("halted", "archived", "deleted")
"""Phases in which nobody may train."""
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
    """Given to all registered runs, as steps and sessions are; the open session included."""
    quota: Quota | None = None
    """None where neither the provider nor anybody else names hours."""
    until: float | None = None
    """When `state` ends by itself, store's clock; None if only by hand."""
    why: Why | None = None
    """What put it into that state; None: nothing did."""
    owner: str = ""
    provider: str = "unknown"
    tier: str | None = None
    gpu: str | None = None
    """As declared by the person; links and usage say what was measured."""
    zone: str | None = None
    """IANA zone of the person."""
    availability: str | None = None
    """When the person is awake and willing, in that zone; as written (relay/people/availability.py reads it)."""
    confirmed: bool = True
    """False: the provider's terms ask for the participant's own confirmation for this run, and it is missing."""
    session_minutes: float | None = None
    """Longest session, as declared, else as the provider's record says."""
    weekly_hours: float | None = None
    """As declared, else as the provider's record says."""
    reset: Reset | None = None
    """When its hours begin anew, where a rule says so: its own, else its provider's."""


@dataclass(frozen=True)
class View:
    """All that status and report show, read at one moment."""

    project: str
    run: str
    target_steps: int
    """What the configuration asks for; a run that has been trained remembers its own."""
    now: float
    """Unix seconds by the ledger store's clock; only ages and the lease's expiry are judged by it."""
    state: RunState | None = None
    sign_of_life: float | None = None
    """The holder's newest lease or heartbeat, store's clock."""
    accounts: tuple[AccountRow, ...] = ()
    clock_is_local: bool = False
    """Whether `now` is this machine's clock, because the store could not be asked without writing (P1)."""
    skew_s: float | None = None
    """Seconds by which this machine's clock is surely ahead of the store's; None where nobody can tell."""
    store: str = ""
    """Address of the ledger's store, without secrets."""
    missing: str = ""
    """What the store holds instead, where the run has not begun in it."""

    @property
    def holder(self) -> Holder | None:
        """The session in the state, whether or not its lease has run out."""
        return self.state.holder if self.state else None

    @property
    def step(self) -> int:
        """The durable step."""
        return self.state.step if self.state else 0

    @property
    def target(self) -> int:
        """The newest target anybody trained for, else the configured one."""
        return (self.state.target_steps if self.state else 0) or self.target_steps

    @property
    def expires_at(self) -> float | None:
        """Newest sign of life plus TTL; None without a lease."""
        if self.holder is None:
            return None
        return max(self.holder.since, self.sign_of_life or 0.0) + self.holder.ttl_s

    @property
    def training(self) -> bool:
        """Whether a session holds a lease that has not run out."""
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
    def stopped(self) -> bool:
        """Whether nobody may train the run, so that no time until its end can be told."""
        return self.phase in STOPPED


def seconds_left(view: View) -> tuple[float, float] | None:
    """(shortest, longest) training time to the target, by the fastest and slowest recent session; None if unknown.

    Of a run that nobody may train none is left.
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
    """Steps per second of one session, by the time it gave: a dead one may have been taken over days later."""
    return (link.to_step - link.from_step) / link.seconds if link.seconds > 0 else 0.0
