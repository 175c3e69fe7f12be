"""When people are awake: the text, the wall clock of their zone, and the nights that the clocks change."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.errors import BadConfig
from relay.people.availability import EXAMPLE, MIDNIGHT, Unsure, Window, Windows, open_part, parse, read
from relay.people.zones import DAYS, wall
from tests.app.cli import Desk
from tests.facts import raising

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia")
STARTS = st.integers(0, MIDNIGHT - 1)
WINDOWS = st.lists(
    st.tuples(st.integers(0, 6), STARTS, st.integers(1, MIDNIGHT)).map(lambda w: (w[0], w[1], w[1] + w[2])),
    min_size=1,
    max_size=4,
    unique=True,
).map(lambda found: tuple(sorted(found)))
MOMENTS = st.integers(1_700_000_000, 1_900_000_000)


def at(text: str, zone: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def by_wall(windows: tuple[Window, ...], zone: str, t: float) -> bool:
    """The rule, read off a wall clock: whether today's or yesterday's windows hold the time it shows."""
    shown = datetime.fromtimestamp(t, ZoneInfo(zone))
    minute = shown.hour * 60 + shown.minute
    return any(
        (day == shown.weekday() and start <= minute < end)
        or (day == (shown.weekday() - 1) % 7 and start <= minute + MIDNIGHT < end)
        for day, start, end in windows
    )


def shown_twice(zone: str, t: float) -> bool:
    """Near a moment whose wall time comes twice, or whose offset changes between the windows' ends and now."""
    tz = ZoneInfo(zone)
    offsets = {datetime.fromtimestamp(t + hours * 3600, tz).utcoffset() for hours in (-2, -1, 0, 1, 2)}
    return len(offsets) > 1


def spell(windows: tuple[Window, ...]) -> str:
    def clock(minutes: int) -> str:
        return f"{minutes // 60:02}:{minutes % 60:02}"

    return "; ".join(
        f"{DAYS[day]} {clock(start)}-{clock(end if end <= MIDNIGHT else end - MIDNIGHT)}" for day, start, end in windows
    )


@given(windows=WINDOWS, zone=st.sampled_from(ZONES), t=MOMENTS)
def test_whoever_the_wall_clock_finds_awake_is_awake(windows: tuple[Window, ...], zone: str, t: int) -> None:
    if not shown_twice(zone, t):
        assert Windows(windows, zone).open_at(t) == by_wall(windows, zone, t)


@given(windows=WINDOWS, zone=st.sampled_from(ZONES), t=MOMENTS, later=st.integers(0, 40 * 86400))
def test_the_next_opening_is_the_first_moment_awake(windows: tuple[Window, ...], zone: str, t: int, later: int) -> None:
    asked = Windows(windows, zone)
    asked.open_at(t + later)
    opens = asked.opens(t)
    assert opens is not None and asked.open_at(opens) and t <= opens <= t + 8 * 86400
    assert not any(asked.open_at(t + part * (opens - t) / 7) for part in range(7)) or opens == t
    assert asked.around(t) == Windows(windows, zone).around(t), "what was asked before changes nothing"


@given(windows=WINDOWS)
def test_text_and_windows_are_one(windows: tuple[Window, ...]) -> None:
    if all(end != start + MIDNIGHT for _, start, end in windows):
        assert parse(spell(windows)) == windows
        assert parse(spell(windows).upper() + " ;") == windows


def test_the_example() -> None:
    evenings = Windows(parse("mon-fri 18:00-23:00; sat,sun 09:00-22:00"), "Europe/Berlin")
    monday = at("2026-11-30T17:59", "Europe/Berlin")
    assert not evenings.open_at(monday) and evenings.opens(monday) == monday + 60
    assert evenings.around(monday) == (monday + 60, monday + 60 + 5 * 3600)
    assert evenings.open_at(at("2026-11-29T09:00", "Europe/Berlin")) and not evenings.open_at(
        at("2026-11-29T22:00", "Europe/Berlin")
    )


@pytest.mark.parametrize(
    ("date", "text", "hours"),
    [
        ("2026-03-29", "daily 01:00-04:00", 2.0),
        ("2026-03-29", "daily 02:30-05:00", 2.0),
        ("2026-03-29", "daily 00:00-02:30", 2.0),
        ("2026-10-25", "daily 01:00-04:00", 4.0),
        ("2026-10-25", "daily 02:00-02:30", 1.5),
    ],
)
def test_windows_across_a_clock_change(date: str, text: str, hours: float) -> None:
    found = Windows(parse(text), "Europe/Berlin").around(at(f"{date}T00:00", "Europe/Berlin") + 60)
    assert found is not None and (found[1] - found[0]) / 3600 == hours


def test_a_window_that_the_clocks_skip_is_none_that_day() -> None:
    night = Windows(parse("daily 02:10-02:50"), "Europe/Berlin")
    opens = night.opens(at("2026-03-29T00:00", "Europe/Berlin"))
    assert opens == at("2026-03-30T02:10", "Europe/Berlin")


def test_a_night_goes_on_into_the_next_day_and_touching_windows_are_one() -> None:
    assert parse("sun 22:00-02:00") == ((6, 22 * 60, 26 * 60),)
    whole = Windows(parse("daily 00:00-24:00"), "UTC").around(1_800_000_000)
    assert whole is not None and whole[1] - whole[0] > 7 * 86400
    assert parse("fri-mon 09:00-10:00, 11:00-12:00")[0] == (0, 540, 600) and len(parse("fri-mon 09:00-10:00")) == 4


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("evenings", "'evenings'"),
        ("mon 18-23", "'18-23'"),
        ("mon 25:00-26:00", "'25:00-26:00'"),
        ("mon 24:00-03:00", "'24:00-03:00'"),
        ("mon 10:00-24:30", "'10:00-24:30'"),
        ("monday 18:00-23:00", "'monday'"),
        ("mon-tue-wed 18:00-23:00", "'mon-tue-wed'"),
        ("mon 18:00-18:00", "'18:00-18:00'"),
        ("", "''"),
        ("mon 18:00-23:00;; tue 1:00-2:00", "''"),
        ("mon ١٨:00-23:00", "'١٨:00-23:00'"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, named: str) -> None:
    with raising(BadConfig, named, EXAMPLE):
        parse(text)


@given(text=st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        assert parse(text)
    except BadConfig as refused:
        assert EXAMPLE in str(refused)


@pytest.mark.parametrize(
    ("text", "zone", "unsure"),
    [
        (None, "Europe/Berlin", Unsure.UNSAID),
        ("\x1b[2J whenever", "UTC", Unsure.UNREADABLE),
        ("mon 10:00-11:00", "Mars/../Olympus", Unsure.UNREADABLE),
    ],
)
def test_what_strangers_wrote_is_taken_as_always(text: str | None, zone: str, unsure: Unsure) -> None:
    windows, told = read(text, zone)
    assert windows.always and told == unsure
    assert windows.open_at(0.0) and windows.opens(5.0) == 5.0


def test_a_missing_zone_is_told() -> None:
    assert read("mon 10:00-11:00", None)[1] is Unsure.NO_ZONE


def test_moments_are_shown_in_the_readers_zone() -> None:
    assert wall(1_800_000_000, "Europe/Berlin") == "Fri 2027-01-15 09:00 CET"
    assert wall(1e18, "no/where").endswith(" UTC")


def test_a_far_future_is_not_walked_to() -> None:
    asked = Windows(parse("daily 02:00-03:00"), "Europe/Berlin")
    assert asked.opens(1_800_000_000) and len(asked._known) < 100
    far = asked.opens(9e10)
    assert far is not None and far < 9e10 + 86400 and len(asked._known) < 100


def test_a_window_that_is_long_enough_is_found() -> None:
    asked = Windows(parse("mon 10:00-10:05; tue 10:00-11:00"), "UTC")
    monday = at("2026-11-30T10:00", "UTC")
    assert asked.fits(monday, 300.0) == (monday, monday + 300)
    assert asked.fits(monday, 600.0) == (monday + 86400, monday + 86400 + 3600)
    assert asked.fits(monday + 86400 + 3300, 600.0) == (monday + 8 * 86400, monday + 8 * 86400 + 3600)
    assert asked.fits(monday, 7200.0) is None


def test_an_account_takes_only_windows_that_can_be_read(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", {"RELAY_OWNER": "Ana"})
    desk("register", "account_1", "Ana's Colab")
    refused = desk("accounts", "edit", "account_1", "--availability", "evenings", code=78)
    assert "'evenings'" in refused.err and EXAMPLE in refused.err
    desk("accounts", "edit", "account_1", "--availability", "mon-fri 18:00-23:00; sat,sun 09:00-22:00", "--zone", "UTC")


def test_the_part_of_a_wait_in_which_somebody_was_awake() -> None:
    ana, bo = Windows(parse("daily 18:00-23:00"), "UTC"), Windows(parse("daily 22:00-24:00; daily 06:00-07:00"), "UTC")
    begins, ends = at("2026-11-30T20:00", "UTC"), at("2026-12-01T08:00", "UTC")
    assert open_part((begins, ends), [ana]) == 3 * 3600
    assert open_part((begins, ends), [ana, bo]) == 5 * 3600
    assert open_part((begins, ends), [ana, Windows()]) == open_part((begins, ends), []) == 12 * 3600
    assert open_part((ends, ends + 60), [ana]) == 0.0 and open_part((ends, ends), [Windows()]) == 0.0
