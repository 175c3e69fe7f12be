"""Orders accounts by who should train next, with the reason why an account cannot start now.

The order and its reasons are in docs/decisions/0009-next-and-plan.md; relay/people/simulate.py follows the same one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from relay.people.accountstate import ENDLESS
from relay.people.participants import Crew
from relay.people.status import AccountRow, RunStatus
from relay.people.team import DAY_S, EQUAL_S, USEFUL_S, Speeds

NEVER_ASKED = ("forgotten", "retired")


class Barred(StrEnum):
    """The reason why an account cannot start now."""

    TRAINING = "training"
    UNCONFIRMED = "unconfirmed"
    """Its person has not confirmed to be a co-author of the run."""
    STATE = "state"
    """Its state."""
    HOURS = "hours"
    """Too few are left for a useful session."""
    ASLEEP = "asleep"
    """Its person is not available now."""
    SHORT = "short"
    """None of its person's windows is long enough for a session."""


@dataclass(frozen=True)
class Bar:
    """The reason why an account cannot start now, and until when."""

    by: Barred
    until: float | None = None
    """Unix seconds; None if unknown."""


@dataclass(frozen=True)
class Rank:
    """The order of turns (docs/decisions/0009-next-and-plan.md); the smallest goes first."""

    saves: bool
    hours: int
    """Whole hours given so far: within the same hour, speed decides."""
    speed: float
    seconds: float
    sessions: int
    id: str

    @property
    def key(self) -> tuple[bool, int, float, float, int, str]:
        """Hours about to be lost; least given, by the hour; fastest; least given; fewest sessions; the id."""
        return (not self.saves, self.hours, -self.speed, self.seconds, self.sessions, self.id)


@dataclass(frozen=True)
class Candidate:
    """One account, and when it can start."""

    row: AccountRow
    at: float | None
    """When it can start, unix seconds: `now` if at once, None if only a person can change that."""
    why_not: Bar | None
    """None if it can start now."""
    free_until: float
    """End of the window in which it can start; infinite if unknown."""
    rank: Rank
    speed: Speeds | None

    @property
    def saved_s(self) -> float:
        """Seconds that would expire at the reset, if the provider allows that as a reason."""
        return self.row.quota.left_s if self.rank.saves and self.row.quota else 0.0


@dataclass(frozen=True)
class Order:
    """All accounts: those that can start now, by rank; those that can later, by time; the rest."""

    now: tuple[Candidate, ...]
    later: tuple[Candidate, ...]
    never: tuple[Candidate, ...]

    @property
    def all(self) -> tuple[Candidate, ...]:
        """In that order."""
        return self.now + self.later + self.never


def order(crew: Crew) -> Order:
    """The order of turns, without retired and forgotten accounts."""
    found = [candidate(crew, row) for row in crew.view.accounts if row.state not in NEVER_ASKED]
    return Order(
        now=tuple(sorted((c for c in found if c.at is not None and not c.why_not), key=lambda c: c.rank.key)),
        later=tuple(sorted((c for c in found if c.at is not None and c.why_not), key=lambda c: (c.at, c.rank.key))),
        never=tuple(c for c in found if c.at is None),
    )


def candidate(crew: Crew, row: AccountRow) -> Candidate:
    """One account's next turn."""
    speed, now, useful = crew.speed_of(row), crew.view.now, min(USEFUL_S, crew.session_s(row))
    at, why = _free(crew, row, useful)
    window = crew.windows_of(row)[0].fits(at, useful) if at is not None else None
    if at is not None and window is None:
        at, why = None, Bar(Barred.SHORT)
    elif at is not None and window and window[0] > at:
        at, why = window[0], Bar(Barred.ASLEEP, window[0])
    resets = row.quota.resets_at if row.quota else None
    saves = crew.record_of(row).may_fill_hours and resets is not None and 0 < resets - now <= DAY_S
    usual = speed.usual if speed else 0.0
    return Candidate(
        row=row,
        at=at,
        why_not=why,
        free_until=window[1] if window else math.inf,
        rank=Rank(saves, int(max(0.0, row.seconds) // EQUAL_S), usual, row.seconds, row.sessions, row.id),
        speed=speed,
    )


def _free(crew: Crew, row: AccountRow, useful_s: float) -> tuple[float | None, Bar | None]:
    """When neither its state nor its hours block it, and the reason until then."""
    view = crew.view
    if row.state == "active":
        return _end_of_lease(view, row)
    if not row.confirmed:
        return None, Bar(Barred.UNCONFIRMED)
    if row.state in ENDLESS or (row.state != "ready" and row.until is None):
        return None, Bar(Barred.STATE)
    if row.state != "ready" and row.until is not None and row.until > view.now:
        return row.until, Bar(Barred.STATE, row.until)
    if row.quota is not None and row.quota.left_s < useful_s:
        resets = row.quota.resets_at
        return None if resets is None else max(resets, view.now), Bar(Barred.HOURS, resets)
    return view.now, None


def _end_of_lease(view: RunStatus, row: AccountRow) -> tuple[float | None, Bar]:
    holder = view.holder
    if holder is None or holder.account != row.id or holder.latest_end is None:
        return None, Bar(Barred.TRAINING)
    return max(view.now, holder.latest_end), Bar(Barred.TRAINING, holder.latest_end)


def first_after(crew: Crew, account: str) -> str | None:
    """The account that a session of `account` proposes as it ends: the first other one, if there is another."""
    found = order(crew)
    can: Sequence[Candidate] = found.now + found.later
    others = [one.row.id for one in can if one.row.id != account]
    return next(iter(others or [one.row.id for one in can]), None)
