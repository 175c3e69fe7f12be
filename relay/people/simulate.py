"""Simulates one calendar of a run, session by session, until the target or the horizon.

One session at a time holds the lease. Between sessions, time jumps to the next moment when an account can start.
Accounts with the same waking hours wait in one group, so the cost depends on the sessions, not on the accounts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal, TypeVar

from relay.people.availability import Windows
from relay.people.periods import Periods
from relay.people.team import DAY_S, EQUAL_S, Member, Scenario

# --- Chance for planning: numbers that follow from a seed alone -----------------------------------------------------

T = TypeVar("T")

MASK = 2**64 - 1
STRIDE = 0x9E3779B97F4A7C15


class Chance:
    """SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): a mixed counter."""

    def __init__(self, seed: int) -> None:
        self._count = (seed * 0xD1342543DE82EF95 + STRIDE) & MASK

    def bits(self) -> int:
        """64 uniform random bits."""
        self._count = mixed = (self._count + STRIDE) & MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return mixed ^ (mixed >> 31)

    def uniform(self) -> float:
        """At least 0, below 1."""
        return (self.bits() >> 11) * 2.0**-53

    def pick(self, options: Sequence[T]) -> T:
        """One option. The modulo bias of few options among 2^64 is negligible."""
        return options[self.bits() % len(options)]

    def again(self, options: Sequence[T], count: int) -> tuple[T, ...]:
        """`count` options with replacement: a bootstrap sample."""
        return tuple(self.pick(options) for _ in range(count))

    def beta(self, hits: int, misses: int) -> float:
        """Beta(hits, misses) for whole numbers above 0: the hits-th smallest of hits + misses - 1 uniform numbers."""
        return sorted(self.uniform() for _ in range(hits + misses - 1))[hits - 1]


HORIZON_S = 2 * 366 * DAY_S
PRIOR_DIED, PRIOR_LIVED = 1, 19
"""Prior: one session in twenty dies."""

WHOLE = 1e-6
"""Steps that rounding may leave: they need no session."""
FIELD = 2**20 - 1
"""A session uses 64 random bits: 20 for its speed, 20 for the gap after it, 24 for whether it dies."""

IdleReason = Literal["asleep", "quota", "later"]
TurnKey = tuple[int, float, float, int, int]
"""Hours given, speed (negative), seconds given, sessions, index by id: the order of `turns.Rank` in one group."""


@dataclass(frozen=True)
class Ran:
    """One simulated session."""

    account: str
    start: float
    end: float
    steps: float
    """Durable steps."""
    died: bool


@dataclass
class Calendar:
    """The result of one simulation; `sessions` is empty unless requested."""

    finish: float = math.inf
    count: int = 0
    trained_s: float = 0.0
    """Under the lease, start-up included."""
    gap_s: float = 0.0
    idle_s: dict[IdleReason, float] = field(default_factory=dict)
    """Time in which no account could start, by the reason of the first one that then could."""
    sessions: list[Ran] = field(default_factory=list)


@dataclass
class Group:
    """Accounts that are available at the same hours; those in `ready` have enough of their own hours left."""

    windows: Windows
    useful_s: float
    saving: Periods | None
    """Their resets, if hours about to be lost are a reason for them."""
    ready: list[TurnKey] = field(default_factory=list)
    opens: float = -math.inf
    closes: float = -math.inf

    def open_at(self, t: float) -> bool:
        """Whether a useful session fits at `t`. If not, `opens` is when one does."""
        if self.opens <= t <= self.closes - self.useful_s:
            return True
        while max(t, self.opens) > self.closes - self.useful_s:
            self.opens, self.closes = self.windows.around(max(t, self.closes)) or (math.inf, math.inf)
            if self.opens == math.inf:
                break
        return self.opens <= t

    def order(self, t: float) -> tuple[bool, TurnKey]:
        """Sort key: the smallest of all groups goes first."""
        return self.saving is None or self.saving.after(t) - t > DAY_S, self.ready[0]


def failure_rate(course: Scenario, chance: Chance) -> float:
    """Share of sessions that die: as set, otherwise one draw from the posterior of measured sessions and prior."""
    if course.failure_rate is not None:
        return course.failure_rate
    return chance.beta(course.died + PRIOR_DIED, course.lived + PRIOR_LIVED)


def simulate(course: Scenario, seed: int, keep: bool = False, most: float = math.inf) -> Calendar:
    """One calendar; the same seed gives the same one. `keep` keeps its sessions. It stops after `most` sessions."""
    return Simulation(course, Chance(seed), keep).run(most)


class Simulation:
    """The state of one simulation. Each account is in its group's `ready`, in `waiting`, or training."""

    def __init__(self, course: Scenario, chance: Chance, keep: bool) -> None:
        self.course, self.keep, self.calendar = course, keep, Calendar()
        self.members = sorted(course.members, key=lambda member: member.id)
        self.fails = failure_rate(course, chance)
        self.gaps = chance.again(course.gaps, len(course.gaps))
        self.rates = _rates(self.members, chance)
        self.chance = chance
        self.t, self.need = course.now, float(max(0, course.target - course.step))
        self.given = [member.given_s for member in self.members]
        self.counts = [member.sessions for member in self.members]
        self.speed = [-member.speeds.usual for member in self.members]
        self.useful = [member.useful_s for member in self.members]
        self.left = [_left(member) for member in self.members]
        self.reset_at = [member.resets.after(course.now) for member in self.members]
        self.waiting: list[tuple[float, int, IdleReason]] = []
        self.groups, self.group_of = _groups(self.members)

    def run(self, most: float) -> Calendar:
        """Run until the target, the horizon, `most` sessions, or until no account can ever start again."""
        if self.need <= 0:
            self.calendar.finish = self.t
        self._open_session()
        horizon = self.course.now + HORIZON_S
        while self.need > 0 and self.t < horizon and self.calendar.count < most:
            who = self._next()
            if who is not None:
                self._session(who)
            elif not self._wait():
                break
        return self.calendar

    def _open_session(self) -> None:
        """The session that trains now goes on to its end, without start-up; all others are ready or wait."""
        session = self.course.open
        if session and session.ends_at > self.t and self.need > 0:
            ids = [member.id for member in self.members]
            if session.account in ids:
                who = ids.index(session.account)
                self._hand_over(self._train(who, session.ends_at - self.t, 0.0))
            else:
                self.t = session.ends_at
                self._hand_over(self.chance.bits())
        for each in range(len(self.members)):
            self._admit(each)

    def _next(self) -> int | None:
        """Remove and return the first by rank who can start now; None if there is none."""
        t = self.t
        while self.waiting and self.waiting[0][0] <= t:
            self._admit(heappop(self.waiting)[1])
        while True:
            best: tuple[tuple[bool, TurnKey], Group] | None = None
            for group in self.groups:
                if group.ready and group.open_at(t):
                    order = group.order(t)
                    if best is None or order < best[0]:
                        best = order, group
            if best is None:
                return None
            who = heappop(best[1].ready)[-1]
            self._refresh(who)
            if self.left[who] >= self.useful[who]:
                return who
            self._admit(who)

    def _admit(self, who: int) -> None:
        """Put the account among the ready ones, or among those that wait for a reset or a time."""
        member = self.members[who]
        self._refresh(who)
        if member.not_before > self.t:
            self._park(who, member.not_before, "later")
        elif self.left[who] < self.useful[who]:
            self._park(who, self.reset_at[who], "quota")
        else:
            given = self.given[who]
            turn = (int(given // EQUAL_S), self.speed[who], given, self.counts[who], who)
            heappush(self.group_of[who].ready, turn)

    def _refresh(self, who: int) -> None:
        """A reset that has passed gives the hours back."""
        if self.reset_at[who] <= self.t:
            weekly = self.members[who].weekly_s
            self.left[who] = math.inf if weekly is None else weekly
            self.reset_at[who] = self.members[who].resets.after(self.t)

    def _park(self, who: int, until: float, reason: IdleReason) -> None:
        if until < math.inf:
            heappush(self.waiting, (until, who, reason))

    def _wait(self) -> bool:
        """Jump to the next moment when an account may start; False if there is none."""
        moments = self.waiting[:1]
        moments += [(group.opens, -1, "asleep") for group in self.groups if group.ready]
        until, _, reason = min(moments, default=(math.inf, -1, "later"))
        if until == math.inf:
            return False
        self.calendar.idle_s[reason] = self.calendar.idle_s.get(reason, 0.0) + until - self.t
        self.t = until
        return True

    def _session(self, who: int) -> None:
        member = self.members[who]
        room = min(member.session_s, self.left[who], self.group_of[who].closes - self.t)
        self._hand_over(self._train(who, room, self.course.startup_s))
        self._admit(who)

    def _hand_over(self, bits: int) -> None:
        """Spend the gap until the next session starts."""
        if self.need > 0:
            gap = self.gaps[(bits & FIELD) % len(self.gaps)]
            self.calendar.gap_s += gap
            self.t += gap

    def _train(self, who: int, length: float, startup: float) -> int:
        """Run one session of `length` seconds. If it dies, it keeps its committed steps.

        Returns the unused bits of its random draw.
        """
        bits, rates, start, died = self.chance.bits(), self.rates[who], self.t, False
        rate = rates[(bits & FIELD) % len(rates)]
        trains = max(0.0, length - startup)
        if (bits >> 40) * 2.0**-24 < self.fails:
            died, length = True, length * self.chance.uniform()
            trains = max(0.0, length - startup)
        steps = trains * rate
        if steps >= self.need - WHOLE:
            steps = self.need
            length, died = startup + steps / rate, False
            self.calendar.finish = start + length
        elif died:
            steps = trains // self.course.interval_s * self.course.interval_s * rate
        self.need -= steps
        self._charge(who, start, length)
        self.calendar.count += 1
        self.calendar.trained_s += length
        self.t = start + length + (self.course.ttl_s if died else 0.0)
        if self.keep:
            self.calendar.sessions.append(Ran(self.members[who].id, start, start + length, steps, died))
        return bits >> 20

    def _charge(self, who: int, start: float, length: float) -> None:
        """Charge the session's hours; the part after a reset counts for the new period."""
        end, reset = start + length, self.reset_at[who]
        self.given[who] += length
        self.counts[who] += 1
        if end > reset:
            weekly = self.members[who].weekly_s
            self.left[who] = math.inf if weekly is None else weekly - (end - reset)
            self.reset_at[who] = self.members[who].resets.after(end)
        else:
            self.left[who] -= length


def _left(member: Member) -> float:
    if member.left_s is not None:
        return member.left_s
    return math.inf if member.weekly_s is None else member.weekly_s


def _rates(members: list[Member], chance: Chance) -> list[tuple[float, ...]]:
    """For each member the speeds of this calendar; accounts that share measurements share the draw."""
    drawn: dict[int, tuple[float, ...]] = {}
    for member in members:
        speeds = member.speeds
        if id(speeds) not in drawn:
            drawn[id(speeds)] = chance.again(speeds.samples, speeds.draws or len(speeds.samples))
    return [drawn[id(member.speeds)] for member in members]


def _groups(members: list[Member]) -> tuple[list[Group], list[Group]]:
    """All groups, and the group of each member."""
    found: dict[tuple[object, ...], Group] = {}
    for member in members:
        group = Group(member.windows, member.useful_s, member.resets if member.fills else None)
        found.setdefault(_alike(member), group)
    return list(found.values()), [found[_alike(member)] for member in members]


def _alike(member: Member) -> tuple[object, ...]:
    windows = member.windows
    return windows.windows, windows.zone, member.useful_s, id(member.resets) if member.fills else None
