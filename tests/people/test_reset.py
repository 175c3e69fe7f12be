"""When a provider's week begins: in its own zone, across clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.app.providers import shipped
from relay.core.errors import BadConfig
from relay.people.account import Account
from relay.people.periods import Reset, parse_reset
from relay.people.quota import reset_of
from relay.people.zones import DAYS

ZONES = ["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Santiago"]
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=UTC).timestamp(), datetime(2026, 10, 25, tzinfo=UTC).timestamp()
"""Days on which Berlin's clocks change."""


@pytest.mark.parametrize(
    ("now", "start"),
    [
        ("2026-11-27T12:00", "2026-11-21T00:00"),
        ("2026-11-28T00:00", "2026-11-28T00:00"),
        ("2026-11-27T23:59", "2026-11-21T00:00"),
        ("2026-10-26T12:00", "2026-10-24T00:00"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu"])
def test_a_week_resets_in_the_provider_s_zone(now: str, start: str, zone: str) -> None:
    moment, first = (datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)) for text in (now, start))
    begin, end = Reset(day="sat", zone=zone).week(moment.timestamp())
    assert begin == first.timestamp()
    assert begin <= moment.timestamp() < end
    assert datetime.fromtimestamp(end, ZoneInfo(zone)).strftime("%a %H") == "Sat 00"


resets = st.builds(
    Reset,
    day=st.sampled_from(DAYS),
    hour=st.integers(0, 23),
    minute=st.sampled_from([0, 1, 30, 45, 59]),
    zone=st.sampled_from(ZONES),
)
moments = st.floats(1.7e9, 1.9e9) | st.sampled_from([SPRING, AUTUMN]).flatmap(
    lambda day: st.integers(-7200, 90_000).map(lambda s: day + s)
)


@given(resets, moments)
def test_weeks_hold_every_moment_once_and_follow_each_other(reset: Reset, now: float) -> None:
    begin, end = reset.week(now)
    assert begin <= now < end
    assert reset.week(begin)[0] == begin and reset.week(end)[0] == end
    assert reset.week(end - 0.001) == (begin, end)
    hours = (end - begin) / 3600
    assert 166 <= hours <= 170, "a clock change is an hour, here and there two halves"


@given(resets, moments)
def test_a_week_ends_on_its_day_at_its_time(reset: Reset, now: float) -> None:
    local = datetime.fromtimestamp(reset.week(now)[1], ZoneInfo(reset.zone))
    wall = local.replace(tzinfo=None)
    meant = wall.replace(hour=reset.hour, minute=reset.minute)
    assert DAYS[local.weekday()] == reset.day
    assert wall == meant or timedelta(0) < wall - meant <= timedelta(hours=1), "a time that was skipped comes later"


def test_the_hour_that_comes_twice_and_the_one_that_never_comes() -> None:
    berlin = Reset(day="sun", hour=2, minute=30, zone="Europe/Berlin")
    assert berlin.week(AUTUMN + 3600)[0] == AUTUMN + 1800, "the first 02:30, though it is the second 02:00 now"
    assert berlin.week(SPRING + 7200)[0] == SPRING + 5400, "02:30 was skipped: 03:30"


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("sat 00:00 UTC", Reset(day="sat")),
        ("Saturday 0:00", Reset(day="sat")),
        (" mon 09:30  Europe/Berlin ", Reset(day="mon", hour=9, minute=30, zone="Europe/Berlin")),
    ],
)
def test_a_reset_as_people_write_it(text: str, reset: Reset) -> None:
    assert parse_reset(text) == reset == parse_reset(str(reset))


@pytest.mark.parametrize("text", ["", "sat", "sat 24:00", "sat 10:61", "xyz 10:00", "sat 00:00 Mars", "x" * 9999])
def test_what_is_no_reset_is_78_with_an_example(text: str) -> None:
    with pytest.raises(BadConfig, match="sat 00:00 UTC"):
        parse_reset(text)


@pytest.mark.parametrize("zone", [None, "Mars/Olympus", "../../etc/passwd", "Europe"])
def test_hours_of_a_person_in_a_zone_that_nobody_knows_count_in_utc(zone: str | None) -> None:
    account = Account(id="a", label="a", owner="a", provider="unknown", weekly_hours=5.0, zone=zone)
    assert reset_of(account, shipped().unknown) == Reset(day="mon", zone="UTC")
