"""The input of planning, as numbers: members, speeds, ranks, the scenario."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from relay.people.availability import Windows
from relay.people.periods import NEVER, Periods

USEFUL_S = 600.0
"""Shorter sessions are not started, unless the account's longest is even shorter."""
DAY_S = 86400.0
EQUAL_S = 3600.0
"""Accounts that have given the same number of these are equal; then speed decides."""


@dataclass(frozen=True)
class Speeds:
    """Steps per second from lease to release, one for each measured session."""

    samples: tuple[float, ...]
    draws: int = 0
    """How many samples one simulated calendar draws, with replacement; 0 for as many as were measured, so that few
    measurements give a wide range. 1 for unmeasured claims: each calendar uses one of them throughout."""

    @property
    def usual(self) -> float:
        """The median."""
        return median(self.samples)


@dataclass(frozen=True)
class Member:
    """One account that can be planned: its speed is measured, or assumed with a note."""

    id: str
    speeds: Speeds
    session_s: float
    """Longest session, from machine start to its end."""
    weekly_s: float | None = None
    """Seconds of one period; None for no limit."""
    left_s: float | None = None
    """Seconds left of the present period; None for all of it."""
    resets: Periods = NEVER
    windows: Windows = field(default_factory=Windows)
    given_s: float = 0.0
    sessions: int = 0
    fills: bool = False
    """Whether the provider allows expiring hours as a reason."""
    not_before: float = 0.0
    """It is cooling, blocked or busy until then (unix seconds)."""
    kind: str = ""
    """Provider and GPU, as printed."""

    @property
    def useful_s(self) -> float:
        """The shortest session worth asking for."""
        return min(USEFUL_S, self.session_s)


@dataclass(frozen=True)
class OpenSession:
    """The session that trains now, and its latest end."""

    account: str
    ends_at: float


@dataclass(frozen=True)
class Scenario:
    """The run as planning sees it; times are unix seconds, durations seconds."""

    now: float
    step: int
    target: int
    members: tuple[Member, ...]
    gaps: tuple[float, ...]
    """Between the end of one session and the start of the next, while an account could start."""
    startup_s: float
    """From machine start to the first step: set-up, imports, data, compiling."""
    interval_s: float
    """Between commits: a session that dies loses its steps after the last one."""
    died: int = 0
    lived: int = 0
    """Measured sessions that died, and that did not."""
    failure_rate: float | None = None
    """Share of sessions that die; None if not set."""
    ttl_s: float = 180.0
    """How long the lease of a dead session blocks the next one."""
    open: OpenSession | None = None
