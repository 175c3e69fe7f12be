"""Who can begin when, what bars the others, and in which order people are asked; writes nothing and sends nothing.

The order and its reasons are in docs/decisions/0009-next-and-plan.md; relay/people/simulate.py follows the same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relay.app.messages.wording import duration
from relay.people.accountstate import ENDLESS
from relay.people.crew import Crew
from relay.people.status import AccountRow, View
from relay.people.team import DAY_S, USEFUL_S, Rank, Speeds

Shown = Callable[[float], str]
"""A moment as the reader's wall clock shows it."""
NEVER_ASKED = ("forgotten", "retired")


@dataclass(frozen=True)
class Candidate:
    """One account, and when it can begin."""

    row: AccountRow
    at: float | None
    """Unix seconds; `now` if at once, None if only a person can change that."""
    why_not: str
    """What bars it now; empty if nothing does."""
    free_until: float
    """End of the window that it can begin in; infinite where none is known."""
    rank: Rank
    speed: Speeds | None

    @property
    def saved_s(self) -> float:
        """Hours that would be lost at the reset, if that may be a reason."""
        return self.row.quota.left_s if self.rank.saves and self.row.quota else 0.0


@dataclass(frozen=True)
class Order:
    """Everybody: first those who can begin now, by rank; then by when they can; then the rest."""

    now: tuple[Candidate, ...]
    later: tuple[Candidate, ...]
    never: tuple[Candidate, ...]

    @property
    def all(self) -> tuple[Candidate, ...]:
        """In that order."""
        return self.now + self.later + self.never


def order(crew: Crew, shown: Shown) -> Order:
    """Accounts that nobody will ask again are left out."""
    found = [candidate(crew, row, shown) for row in crew.view.accounts if row.state not in NEVER_ASKED]
    return Order(
        now=tuple(sorted((c for c in found if c.at is not None and not c.why_not), key=lambda c: c.rank.key)),
        later=tuple(sorted((c for c in found if c.at is not None and c.why_not), key=lambda c: (c.at, c.rank.key))),
        never=tuple(c for c in found if c.at is None),
    )


def candidate(crew: Crew, row: AccountRow, shown: Shown) -> Candidate:
    """What is known of one account's next turn."""
    speed, now, useful = crew.speed_of(row), crew.view.now, min(USEFUL_S, crew.session_s(row))
    at, why = _free(crew, row, useful, shown)
    window = crew.windows_of(row)[0].fits(at, useful) if at is not None else None
    if at is not None and window is None:
        at, why = None, "its windows are shorter than a session"
    elif at is not None and window and window[0] > at:
        at, why = window[0], f"asleep until {shown(window[0])}"
    resets = row.quota.resets_at if row.quota else None
    saves = crew.record_of(row).may_fill_hours and resets is not None and 0 < resets - now <= DAY_S
    usual = speed.usual if speed else 0.0
    return Candidate(
        row=row,
        at=at,
        why_not=why,
        free_until=window[1] if window else math.inf,
        rank=Rank(saves, int(max(0.0, row.seconds) // 3600), usual, row.seconds, row.sessions, row.id),
        speed=speed,
    )


def _free(crew: Crew, row: AccountRow, useful_s: float, shown: Shown) -> tuple[float | None, str]:
    """When neither its state nor its hours bar it any more, and what bars it till then."""
    view = crew.view
    if row.state == "active":
        return _end_of_lease(view, row, shown)
    if not row.confirmed:
        return None, "unconfirmed: its person has not said to be a co-author of this run"
    if row.state in ENDLESS or (row.state != "ready" and row.until is None):
        return None, f"{row.state}: {row.why}" if row.why else row.state
    if row.state != "ready" and row.until is not None and row.until > view.now:
        return row.until, f"{row.state} until {shown(row.until)}"
    if row.quota is not None and row.quota.left_s < useful_s:
        resets, left = row.quota.resets_at, f"{duration(row.quota.left_s)} left"
        return (None, left) if resets is None else (max(resets, view.now), f"{left} until {shown(resets)}")
    return view.now, ""


def _end_of_lease(view: View, row: AccountRow, shown: Shown) -> tuple[float | None, str]:
    holder = view.holder
    if holder is None or holder.account != row.id or holder.latest_end is None:
        return None, "training now"
    return max(view.now, holder.latest_end), f"training until {shown(holder.latest_end)}"


def first_after(crew: Crew, account: str) -> str | None:
    """Whom a session of `account` proposes as it ends: the first who can begin, another one if there is one."""
    found = order(crew, str)
    can: Sequence[Candidate] = found.now + found.later
    others = [one.row.id for one in can if one.row.id != account]
    return next(iter(others or [one.row.id for one in can]), None)
