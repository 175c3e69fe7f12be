"""Usage: intervals, totals and provider weeks (P12)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.core.ledger import usage
from relay.core.ledger.changes import By, Lease
from relay.core.ledger.frozen import MAX_INTERVALS
from relay.core.ledger.rules import apply
from relay.core.ledger.state import Usage
from tests.core.making import genesis, id_of

NOW = 1.7e9


def test_intervals_older_than_15_days_go_and_totals_stay() -> None:
    table = usage.ended({}, "ana", NOW, 100.0, NOW + 100)
    table = usage.ended(table, "ben", NOW + 16 * 86400, 50.0, NOW + 16 * 86400)
    assert (table["ana"].intervals, table["ana"].seconds) == ((), 100.0)
    assert table["ben"].intervals == ((int(NOW) + 16 * 86400, int(NOW) + 16 * 86400 + 50),)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10_000)), min_size=20, max_size=40))
@settings(max_examples=40)
def test_when_there_are_too_many_intervals_their_total_length_stays(sessions: list[tuple[str, int]]) -> None:
    table: dict[str, Usage] = {}
    limit, usage.MAX_INTERVALS = usage.MAX_INTERVALS, 10  # type: ignore[misc]
    try:
        at, given_s = NOW, dict.fromkeys("abc", 0)
        for account, seconds in sessions:
            table = usage.ended(table, account, at, float(seconds), at + seconds)
            given_s[account] += seconds
            at += seconds + 100
    finally:
        usage.MAX_INTERVALS = limit  # type: ignore[misc]
    assert sum(len(one.intervals) for one in table.values()) <= 10
    for account, one in table.items():
        assert sum(end - start for start, end in one.intervals) == given_s[account] == one.seconds
        assert list(one.intervals) == sorted(one.intervals)


def test_the_shipped_limit_of_intervals() -> None:
    table: dict[str, Usage] = {
        "a": Usage(intervals=tuple((n, n + 1) for n in range(int(NOW), int(NOW) + MAX_INTERVALS)))
    }
    table = usage.ended(table, "b", NOW, 5.0, NOW)
    assert (len(table["a"].intervals), len(table["b"].intervals)) == (MAX_INTERVALS - 1, 1)


def test_usage_is_summed_over_runs_and_the_open_session_counts() -> None:
    state = apply(None, "genesis", genesis().model_dump(mode="json"), By(id_of(1), None, 0, NOW))
    one = state.model_copy(update={"usage": {"ana": Usage(sessions=2, steps=30, seconds=100.0,
                                                          intervals=((0, 60), (100, 140)))}})  # fmt: skip
    two = state.model_copy(update={"usage": {"ana": Usage(sessions=1, steps=5, seconds=10.0, intervals=((50, 60),))}})
    runs, still_open = [one, two, state], [(115.0, 122.0)]
    assert usage.given(runs, "ana", still_open) == usage.Given(sessions=3, steps=35, seconds=117.0)
    assert usage.seconds_within(runs, "ana", (50.0, 120.0), still_open) == 10 + 20 + 10 + 5
    assert usage.given([state], "ben") == usage.Given(0, 0, 0.0)


def test_runs_that_an_account_holds() -> None:
    state = apply(None, "genesis", genesis().model_dump(mode="json"), By(id_of(1), None, 0, NOW))
    held = apply(state, "lease", Lease().model_dump(mode="json"), By(id_of(1), "ana", 1, NOW))
    assert usage.leases_of([state, held], "ana") == [held]
    assert usage.leases_of([state, held], "ben") == []
