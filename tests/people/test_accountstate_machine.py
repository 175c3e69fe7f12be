"""Every state of an account and every way out of it: two editors, resets across clock changes, sessions that die (P12).

The registry and the run's ledger are real, on a store whose clock the machine moves. What must be left of the hours is
added up again from the sessions as they happened, week by week from the calendar.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from relay.app.providers import shipped
from relay.core.ledger.changes import Lease, Release, TookOver
from relay.core.ledger.registry import Registry
from relay.core.ledger.state import RunState
from relay.core.runs.registered import Standing
from relay.people.account import Reading, confirmed
from relay.people.accounts import Accounts
from relay.people.status import AccountRow
from relay.people.usage import rows
from relay.people.zones import DAYS
from storage.memory import MemoryStore
from tests.core.making import Client, Clock, QuietRuntime, id_of
from tests.people.registering import register

TTL = 180
HOUR = 3600
STARTS = [
    datetime(2026, 3, 27, 20, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2026, 10, 23, 20, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2026, 7, 1, tzinfo=ZoneInfo("UTC")),
]
"""Shortly before Berlin's clocks go forward, before they go back, and far from both."""
WEEKS = {"Kaggle's own": None, "in the change": "sun 02:30 Europe/Berlin", "far east": "mon 00:15 Asia/Kathmandu"}
ENDLESS = ("blocked", "retired")


class OneAccount(RuleBasedStateMachine):
    """Account `me` at Kaggle; account `you` only takes over what `me` leaves behind."""

    @initialize(start=st.sampled_from(STARTS), week=st.sampled_from(sorted(WEEKS)))
    def begin(self, start: datetime, week: str) -> None:
        self.clock = Clock(float(round(start.timestamp())))
        store = MemoryStore(clock=self.clock)
        self.editors = [Accounts(Registry(store, QuietRuntime(n), session=id_of(n)), shipped()) for n in (1, 2)]
        self.editors[0].registry.begin(id_of(5))
        for name in ("me", "you"):
            register(self.editors[0], name, name, owner=name, provider="kaggle", reset=WEEKS[week])
        self.client = Client(store, 3, account="me")
        self.client.begin()
        run, clause = self.client.ledger.read().state.run_id, shipped().named("kaggle").clause_digest
        self.editors[0].change("me", lambda old: confirmed(old, run, clause, self.clock.now))
        self.reset = WEEKS[week] or "sat 00:00 UTC"
        self.declared: tuple[str, float | None] = ("ready", None)
        self.reading: Reading | None = None
        self.sessions: list[tuple[float, float]] = []
        self.since: float | None = None
        self.beat = 0.0
        self.zone: str | None = None
        self.label = "me"

    # -- what people do
    @rule(editor=st.integers(0, 1), state=st.sampled_from(["paused", "cooling"]), hours=st.none() | st.integers(1, 200))
    def declare(self, editor: int, state: Any, hours: int | None) -> None:
        until = self.clock.now + hours * HOUR if hours else None
        self.editors[editor].set_status("me", state, until)
        self.declared = (state, until)

    @rule(editor=st.integers(0, 1), state=st.sampled_from(["ready", "blocked", "retired"]))
    def declare_without_end(self, editor: int, state: Any) -> None:
        self.editors[editor].set_status("me", state)
        self.declared = (state, None)

    @rule(editor=st.integers(0, 1))
    def provider_refuses(self, editor: int) -> None:
        ends = self.editors[editor].set_status("me", "quota_exceeded")
        assert ends == self.week(self.clock.now)[1], "it ends at the next reset"
        self.declared = ("quota_exceeded", ends)

    @rule(zone=st.sampled_from(["UTC", "Asia/Tokyo"]), label=st.sampled_from(["me", "my account"]))
    def both_edit(self, zone: str, label: str) -> None:
        self.editors[0].edit("me", zone=zone)
        self.editors[1].edit("me", label=label)
        self.zone, self.label = zone, label

    @rule(hours=st.integers(0, 30), official=st.booleans(), ends=st.none() | st.integers(1, 300))
    def say_quota(self, hours: int, official: bool, ends: int | None) -> None:
        now = self.clock.now
        self.reading = Reading(
            left_s=float(hours * HOUR),
            of_s=30.0 * HOUR,
            source="official" if official else "declared",
            read_at=now,
            resets_at=now + ends * HOUR if ends else None,
        )
        self.editors[0].set_quota("me", self.reading)

    # -- sessions
    @precondition(lambda self: self.since is None)
    @rule()
    def lease(self) -> None:
        self.since = self.beat = self.clock.now
        self.client.account = "me"
        self.client.lease()

    @precondition(lambda self: self.since is not None and self.alive())
    @rule(hours=st.integers(1, 11))
    def train_on(self, hours: int) -> None:
        self.clock.now += hours * HOUR
        self.beat = self.clock.now

    @precondition(lambda self: self.since is not None and self.alive())
    @rule()
    def release(self) -> None:
        assert self.since is not None
        self.client.append("release", lambda s: Release(reason="budget", seconds=self.clock.now - (self.since or 0.0)))
        self.sessions.append((self.since, self.clock.now))
        self.since = None

    @precondition(lambda self: self.since is not None and not self.alive())
    @rule()
    def taken_over(self) -> None:
        """It died without a release: whoever takes over writes down its time up to the last sign of life."""
        assert self.since is not None
        gone, seconds = self.since, self.beat - self.since
        self.client.account = "you"
        self.client.ledger.append(
            "lease",
            lambda s: Lease(target_steps=9, took_over=TookOver(epoch=s.epoch, reason="silent", seconds=seconds)),
            session=self.client.session,
            account="you",
        )
        self.client.epoch += 1
        self.client.append("release", lambda s: Release(reason="budget", seconds=0.0))
        self.sessions.append((gone, self.beat))
        self.since = None

    @rule(hours=st.integers(1, 100))
    def time_passes(self, hours: int) -> None:
        self.clock.now += hours * HOUR

    @precondition(lambda self: self.declared[1] is not None and self.declared[1] > self.clock.now)
    @rule()
    def until_the_end(self) -> None:
        self.clock.now = self.declared[1] or 0.0

    # -- what must hold
    @invariant()
    def the_state_is_what_the_table_says(self) -> None:
        row, (declared, until), now = self.row(), self.declared, self.clock.now
        if self.since is not None and self.alive():
            assert row.state == "active"
        elif declared in ENDLESS:
            assert (row.state, row.until) == (declared, None)
        elif declared != "ready" and (until is None or now < until):
            assert (row.state, row.until) == (declared, until)
        elif row.quota is not None and row.quota.left_s == 0:
            assert (row.state, row.until) == ("cooling", row.quota.resets_at)
            assert row.until is not None and row.until > now
        else:
            assert (row.state, row.until) == ("ready", None)

    @invariant()
    def what_is_left_is_what_the_sessions_leave(self) -> None:
        quota, now, reading = self.row().quota, self.clock.now, self.reading
        assert quota is not None
        begin, end = self.week(now)
        ends = None if reading is None else reading.resets_at or self.week(reading.read_at)[1]
        if reading is not None and ends is not None and now < ends:
            expected = max(0.0, reading.left_s - self.used(reading.read_at, now))
            assert (quota.left_s, quota.source, quota.resets_at) == (expected, reading.source, ends)
        else:
            expected = max(0.0, 30.0 * HOUR - self.used(begin, now))
            assert (quota.left_s, quota.source, quota.resets_at) == (expected, "estimated", end)
            assert quota.stale == (reading is not None)

    @invariant()
    def all_time_that_was_given_counts_and_edits_are_kept(self) -> None:
        row = self.row()
        assert row.seconds == sum(end - begin for begin, end in self.all_sessions())
        assert (row.zone, row.label) == (self.zone, self.label)

    # -- helpers
    def alive(self) -> bool:
        return self.beat + TTL > self.clock.now

    def row(self) -> AccountRow:
        run: RunState = self.client.ledger.read().state
        standing = Standing(run, self.beat if self.since is not None else None)
        found = rows(self.editors[0].all(), [standing], shipped(), self.clock.now, run.run_id)
        return next(row for row in found if row.id == "me")

    def all_sessions(self) -> list[tuple[float, float]]:
        if self.since is None:
            return self.sessions
        return [*self.sessions, (self.since, self.clock.now if self.alive() else self.beat)]

    def used(self, begin: float, end: float) -> float:
        return sum(max(0.0, min(e, end) - max(b, begin)) for b, e in self.all_sessions())

    def week(self, now: float) -> tuple[float, float]:
        """From the calendar: all resets for weeks around, the last one before and the first one after."""
        day, time, zone = self.reset.split()
        hour, minute = map(int, time.split(":"))
        local = datetime.fromtimestamp(now, ZoneInfo(zone)).replace(fold=0, second=0, microsecond=0)
        days = [local + timedelta(days=n) for n in range(-16, 17)]
        resets = sorted(d.replace(hour=hour, minute=minute).timestamp() for d in days if DAYS[d.weekday()] == day)
        return max(r for r in resets if r <= now), min(r for r in resets if r > now)


OneAccount.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestOneAccount = pytest.mark.slow(OneAccount.TestCase)
