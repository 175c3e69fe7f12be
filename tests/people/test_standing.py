"""Accounts over all runs: who trains now, what each gave, and what a week still holds (P12)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from relay.app.providers import shipped
from relay.core.ledger.registry import Row
from relay.core.ledger.state import RunState, Usage
from relay.core.runs.registered import Standing
from relay.people.account import Account, confirmed
from relay.people.accounts import AccountEntry
from relay.people.status import AccountRow
from relay.people.usage import rows
from tests.people.views import holder, state

NOW = datetime(2025, 1, 15, 14, 30, tzinfo=UTC).timestamp()
HOUR = 3600
RUN, CLAUSE = "a" * 32, shipped().named("kaggle").clause_digest


def listed(*names: str, provider: str = "colab", declared: Any = "ready") -> dict[str, AccountEntry]:
    return {
        name: AccountEntry(
            name,
            Row(sha256="0" * 64, state=declared),
            confirmed(Account(id=name, label=name, owner="A", provider=provider), RUN, CLAUSE, 1.0),
        )
        for name in names
    }


def standing(heartbeat: float | None = None, **changes: Any) -> Standing:
    held: RunState = state(holder=holder(account="a", since=NOW - 1000, latest_end=None), epoch=7)
    return Standing(held.model_copy(update=changes), heartbeat)


def of(name: str, found: list[AccountRow]) -> AccountRow:
    return next(row for row in found if row.id == name)


@pytest.mark.parametrize(
    ("heartbeat", "shown", "seconds"), [(NOW - 5, "active", 1000), (NOW - 600, "ready", 400), (None, "ready", 0)]
)
def test_a_holder_is_active_only_while_its_lease_lives(heartbeat: float | None, shown: str, seconds: float) -> None:
    row = of("a", rows(listed("a", "b"), [standing(heartbeat)], shipped(), NOW))
    assert (row.state, row.seconds) == (shown, seconds)


def test_training_any_run_is_active_and_all_runs_count() -> None:
    gave = {"a": Usage(sessions=2, steps=30, seconds=50.0), "gone": Usage(sessions=1, steps=1, seconds=1.0)}
    runs = [standing(holder=None, usage=gave), standing(NOW - 5, usage={"a": Usage(sessions=1, steps=5, seconds=7.0)})]
    found = rows(listed("a", "b"), runs, shipped(), NOW)
    row = of("a", found)
    assert (row.state, row.sessions, row.steps, row.seconds) == ("active", 3, 35, 1057.0)
    assert [r.id for r in found] == ["a", "b", "gone"] and of("gone", found).state == "forgotten"


def test_a_used_up_week_is_not_asked_until_it_resets() -> None:
    """Kaggle's week begins on Saturday 00:00 UTC."""
    saturday = datetime(2025, 1, 11, tzinfo=UTC).timestamp()
    before = (int(saturday) - 31 * HOUR, int(saturday))
    within = (int(saturday), int(saturday) + 31 * HOUR)
    for interval, left, shown, until in ((before, 30, "ready", None), (within, 0, "cooling", saturday + 7 * 24 * HOUR)):
        run = standing(holder=None, usage={"a": Usage(sessions=1, seconds=31 * HOUR, intervals=(interval,))})
        row = of("a", rows(listed("a", provider="kaggle"), [run], shipped(), NOW, RUN))
        assert row.quota is not None
        assert (row.quota.left_s, row.state, row.until) == (left * HOUR, shown, until)
    assert of("a", rows(listed("a"), [run], shipped(), NOW)).quota is None
