"""What is left of an account's hours, and how that is known; reads no clock and no store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from relay.core.ledger.usage import Interval
from relay.people.account import Account
from relay.people.policy import Provider
from relay.people.reset import Reset

AHEAD_S = 600.0
"""A number that was read further ahead than this was read by a clock that was wrong, and counts no more."""
Source = Literal["official", "declared", "estimated"]


@dataclass(frozen=True)
class Quota:
    """Hours left until the provider's next reset, in seconds; times are unix seconds by the store's clock."""

    left_s: float
    """Never below zero. What was measured since `read_at` is taken off already."""
    of_s: float | None
    """The whole allowance of one period; None if unknown."""
    source: Source
    """The provider's own number, what a person said, or weekly hours less what was measured here."""
    read_at: float
    """When the number was read or said; for an estimate, the moment it was computed."""
    resets_at: float | None
    """None where the provider names no reset."""
    stale: bool = False
    """Whether somebody read or said a number, but before the last reset, so that this is an estimate again."""

    def age_s(self, now: float) -> float:
        """How old the number is."""
        return max(0.0, now - self.read_at)


def reset_of(account: Account, provider: Provider) -> Reset | None:
    """The account's own, else its provider's; hours that only its person named count from Monday in their zone."""
    known = account.week or provider.reset
    return Reset(day="mon", zone=account.usable_zone) if known is None and account.weekly_hours else known


def hours_of(account: Account, provider: Provider) -> float | None:
    """Hours a week: as declared, else as the provider's record says."""
    return account.weekly_hours or provider.weekly_hours


def left(account: Account, provider: Provider, used: Callable[[Interval], float], now: float) -> Quota | None:
    """What is left at `now`; `used` gives the seconds measured in an interval. None where nobody names hours.

    A number that somebody read or said counts until the reset after it, less what was measured since. Else it is the
    weekly hours less what was measured in this week; machines count longer than leases, so that is an upper bound.
    """
    reset, hours = reset_of(account, provider), hours_of(account, provider)
    week = reset.week(now) if reset else None
    reading = account.quota
    if reading is not None and reading.read_at <= now + AHEAD_S:
        ends = reading.resets_at or (reset.week(reading.read_at)[1] if reset else None)
        if ends is None or now < ends:
            rest = max(0.0, reading.left_s - used((min(reading.read_at, now), now)))
            return Quota(rest, reading.of_s or _seconds(hours), reading.source, reading.read_at, ends)
    if hours is None or week is None:
        return None
    rest = max(0.0, hours * 3600 - used(week))
    return Quota(rest, hours * 3600, "estimated", now, week[1], stale=reading is not None)


def _seconds(hours: float | None) -> float | None:
    return None if hours is None else hours * 3600
