"""The next turn: who can begin now, in an order people accept, and why all others cannot."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.app.messages.handoff import Reader, bar_text
from relay.app.providers import shipped
from relay.core.clock import RealRuntime
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import Holder
from relay.people.availability import Windows, parse
from relay.people.participants import Crew
from relay.people.status import AccountRow
from relay.people.turns import Barred, first_after
from relay.people.zones import DAYS, wall
from storage.base import open_store
from tests.app.cli import PROJECT, Desk
from tests.people.turns import DAY, HOUR, NOON, filling, halted, link, quota, turn_of, view
from tests.people.views import trained


def test_the_ready_account_that_gave_least_goes_next() -> None:
    rows = (
        AccountRow("a", "A", "ready", seconds=50.0),
        AccountRow("b", "B", "cooling", seconds=0.0),
        AccountRow("c", "C", "ready", seconds=10.0),
        AccountRow("d", "D", "blocked", seconds=0.0),
    )
    turn = turn_of(*rows)
    assert turn.account == rows[2]
    assert turn.command.split()[:2] == ["ACCOUNT_ID=c", "RUN_NAME=r"]
    assert turn.command in turn.message and "10 s" in turn.why
    assert [one.row.id for one in turn.others] == ["a", "b", "d"]


def test_equal_accounts_take_turns_by_sessions_then_id() -> None:
    rows = [AccountRow("b", "", "ready"), AccountRow("a", "", "ready"), AccountRow("0", "", "ready", sessions=1)]
    turn = turn_of(*rows)
    assert turn.account and turn.account.id == "a" and "by id" in turn.why
    assert [one.row.id for one in turn.others] == ["b", "0"]


def test_within_the_hour_the_fastest_measured_gpu_goes_first() -> None:
    state = trained(epoch=2, holder=None, links=(link("slow", 2.0, "Tesla T4"), link("fast", 9.0, "NVIDIA H100", 2)))
    rows = (
        AccountRow("slow", "", "ready", seconds=HOUR + 5),
        AccountRow("fast", "", "ready", seconds=2 * HOUR - 5),
        AccountRow("new", "", "ready", seconds=HOUR, gpu="H100"),
    )
    asked = {"state": state, "target_steps": 10**9}
    first = turn_of(*rows, **asked)
    assert first.account and first.account.id == "new", "its GPU was measured by others; it gave less than `fast`"
    fast = turn_of(*rows[:2], **asked)
    assert fast.account and fast.account.id == "fast" and "fastest" in fast.why
    unlike = replace(rows[0], id="new2", seconds=HOUR)
    lone = turn_of(rows[0], unlike, **asked)
    assert lone.account and lone.account.id == "slow" and "fastest" not in lone.why
    far = turn_of(rows[0], replace(rows[1], seconds=2 * HOUR), **asked)
    assert far.account and far.account.id == "slow", "an hour more outweighs any speed"


def test_hours_about_to_be_lost_are_a_reason_only_where_the_record_says_so() -> None:
    rows = (
        AccountRow("little", "", "ready", seconds=0.0),
        AccountRow("much", "", "ready", seconds=90 * HOUR, quota=quota(5 * HOUR, DAY - 1), provider="generous"),
    )
    allowed, forbidden = turn_of(*rows, providers=filling()), turn_of(*rows)
    assert allowed.account == rows[1] and "5 h 00 min" in allowed.why
    assert forbidden.account == rows[0] and "5 h 00 min" not in forbidden.why
    later = replace(rows[1], quota=quota(5 * HOUR, DAY + 60))
    assert turn_of(rows[0], later, providers=filling()).account == rows[0], "only within a day"


def test_nobody_is_woken_and_everybody_is_told_why_not() -> None:
    evening = "mon-sun 18:00-23:00"
    rows = (
        AccountRow("asleep", "Ana", "ready", availability=evening, zone="Europe/Berlin"),
        AccountRow("cooling", "", "cooling", until=NOON + 2 * HOUR),
        AccountRow("used", "", "ready", quota=quota(60.0, 3 * HOUR)),
        AccountRow("doubt", "", "ready", confirmed=False),
        AccountRow("paused", "", "paused"),
        AccountRow("gone", "", "retired"),
    )
    turn = turn_of(*rows, reader=Reader("America/New_York", "paused"))
    assert turn.account is None and turn.document()["command"] is None
    assert turn.first and turn.first.row.id == "cooling" and turn.first.at == NOON + 2 * HOUR
    told = {one.row.id: bar_text(one, "America/New_York") for one in turn.others}
    assert list(told) == ["used", "asleep", "doubt", "paused"], "by when they can, then who cannot"
    assert told["asleep"] == f"asleep until {wall(NOON + 5 * HOUR, 'America/New_York')}"
    assert told["used"].startswith("60 s left until") and told["doubt"].startswith("unconfirmed")
    assert "Sat 2026-11-28 09:00 EST" in turn.message and "ACCOUNT_ID=cooling" in turn.message
    assert turn.document()["you"] is False and "paused" in turn.text()
    assert turn.document()["first"]["can_at"] == "2026-11-28T14:00:00Z"


def test_a_window_too_short_for_a_session_is_no_turn() -> None:
    hasty = AccountRow("a", "", "ready", availability="daily 12:00-12:05", zone="UTC")
    turn = turn_of(hasty)
    assert turn.account is None and turn.others[0].why_not.by is Barred.SHORT
    closing = AccountRow("b", "", "ready", availability="daily 06:00-12:05", zone="UTC")
    assert turn_of(closing).first is not None


def test_whoever_trains_is_told_to_wait_for() -> None:
    holder = Holder(
        session="1" * 32, account="a", epoch=3, since=NOON - 60, ttl_s=180.0, latest_end=NOON + HOUR, target_steps=100
    )
    state = trained(holder=holder)
    turn = turn_of(AccountRow("a", "", "active"), AccountRow("b", "", "ready"), state=state, target_steps=10**9)
    assert turn.account and turn.account.id == "b"
    assert "a is training" in turn.message
    assert bar_text(turn.others[0], "UTC") == f"training until {wall(NOON + HOUR, 'UTC')}"
    alone = turn_of(AccountRow("a", "", "active"), state=state, target_steps=10**9)
    assert alone.account is None and alone.first and alone.first.at == NOON + HOUR


@pytest.mark.parametrize("rows", [(), (AccountRow("a", "A", "quota_exceeded"),)])
def test_nobody_ready_says_what_to_do(rows: tuple[AccountRow, ...]) -> None:
    turn = turn_of(*rows)
    assert turn.account is None and turn.document()["command"] is None and "register" in turn.message


def test_a_halted_run_has_no_next() -> None:
    turn = turn_of(AccountRow("a", "A", "ready"), state=halted())
    assert turn.account is None and turn.document()["command"] is None and "nan" in turn.message


def test_a_finished_run_has_no_next() -> None:
    turn = turn_of(AccountRow("a", "A", "ready"), state=trained(step=100, target_steps=100, holder=None))
    assert turn.account is None and turn.document()["command"] is None and "100 steps" in turn.message


STATES = st.sampled_from(["ready", "ready", "ready", "cooling", "paused", "blocked", "active"])
ROWS = st.lists(
    st.builds(
        AccountRow,
        id=st.sampled_from([f"a{n}" for n in range(9)]),
        label=st.just(""),
        state=STATES,
        seconds=st.floats(0, 1e6),
        quota=st.none() | st.builds(quota, st.floats(0, 1e5), st.none() | st.floats(1, 1e6)),
        until=st.none() | st.floats(NOON - 1e6, NOON + 1e6),
        availability=st.sampled_from([None, "daily 08:00-11:00", "sat 11:00-14:00; sun 10:00-20:00", "nonsense"]),
        zone=st.sampled_from([None, "UTC", "Asia/Tokyo"]),
        confirmed=st.booleans(),
    ),
    max_size=9,
    unique_by=lambda row: row.id,
)


@given(rows=ROWS)
def test_only_who_may_and_can_is_asked_and_least_goes_first(rows: list[AccountRow]) -> None:
    turn = turn_of(*rows)

    def can(row: AccountRow) -> bool:
        windows = (
            Windows(parse(row.availability), row.zone or "UTC") if (row.availability or "n")[0] != "n" else Windows()
        )
        until = row.state == "ready" or (row.state == "cooling" and row.until is not None and row.until <= NOON)
        until = until or (row.state in ("paused",) and row.until is not None and row.until <= NOON)
        enough = row.quota is None or row.quota.left_s >= 600
        return until and row.confirmed and enough and windows.open_at(NOON)

    able = [row for row in rows if can(row)]
    assert (turn.account is None) == (not able)
    if turn.account:
        least = min(row.seconds // HOUR for row in able)
        assert turn.account in able and turn.account.seconds // HOUR == least


@given(rows=ROWS)
def test_a_release_proposes_the_same_but_another_one(rows: list[AccountRow]) -> None:
    turn, crew = turn_of(*rows), Crew(view(tuple(rows)), shipped())
    asked = turn.account or (turn.first.row if turn.first else None)
    assert first_after(crew, "nobody") == (asked.id if asked else None)
    if asked:
        after = first_after(crew, asked.id)
        others = [one.row.id for one in turn.others if one.at is not None]
        assert after == (others[0] if others else asked.id)


def test_a_session_proposes_whoever_can_as_it_ends(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    desk("register", "account_1", "Ana's Colab")
    desk("register", "blocked", "Bo's Colab")
    desk("register", "asleep", "Cy's Colab", "--availability", never_now(), "--zone", "UTC")
    desk("register", "awake", "Di's Colab")
    desk("accounts", "mark", "blocked", "blocked")
    desk.train(3)
    assert proposed(desk) == "awake"
    desk.train(6, account="awake")
    assert proposed(desk) == "account_1"
    desk("accounts", "mark", "account_1", "blocked")
    desk.train(9, account="awake")
    assert proposed(desk) == "asleep", "rather somebody else later than the same one again"


def proposed(desk: Desk) -> str | None:
    store = open_store((desk.folder / "relay_store").as_uri(), read_only=True)
    return RunLedger(store, PROJECT, "r", RealRuntime()).read().state.next


def never_now() -> str:
    """A window that begins tomorrow and leaves out today, whenever the test runs."""
    day = DAYS[(datetime.now(UTC).weekday() + 3) % 7]
    return f"{day} 10:00-12:00"
