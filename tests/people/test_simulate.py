"""Simulated calendars against closed forms, against a minute-by-minute simulation, and what none of them may do."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import datetime
from statistics import median
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.people.availability import Windows, parse
from relay.people.periods import WEEK_S, Periods, Reset
from relay.people.simulate import HORIZON_S, Chance, failure_rate, simulate
from relay.people.team import Member, OpenSession, Scenario, Speeds
from tests.people.minutes import DAYS, Minutes, World, any_world

NOW = 1_795_867_200.0
HOUR, DAY = 3600.0, 86400.0
ALWAYS = Windows()


def member(name: str = "a", rate: float = 1.0, session_s: float = HOUR, **more: object) -> Member:
    return Member(name, Speeds((rate,), 1), session_s, **more)  # type: ignore[arg-type]


def course(*members: Member, steps: int = 10_000, **more: object) -> Scenario:
    values: dict[str, object] = {
        "now": NOW, "step": 0, "target": steps, "members": members, "gaps": (600.0,), "startup_s": 120.0,
        "interval_s": 600.0, "failure_rate": 0.0,
    }  # fmt: skip
    return Scenario(**(values | more))  # type: ignore[arg-type]


@settings(deadline=None)
@given(
    rate=st.floats(0.1, 50.0),
    session=st.floats(700.0, 50_000.0),
    startup=st.floats(0.0, 600.0),
    gap=st.floats(0.0, 50_000.0),
    steps=st.integers(1, 20_000),
)
def test_one_account_without_limits_ends_exactly_when_arithmetic_says(
    rate: float, session: float, startup: float, gap: float, steps: int
) -> None:
    each = (session - startup) * rate
    full = math.ceil(steps / each) - 1
    expected = full * (session + gap) + startup + (steps - full * each) / rate
    found = simulate(course(member(rate=rate, session_s=session), steps=steps, startup_s=startup, gaps=(gap,)), 1)
    if expected < HORIZON_S and abs(steps / each - round(steps / each)) > 1e-6:
        assert found.finish - NOW == pytest.approx(expected, rel=1e-6, abs=1e-3)
        assert found.count == full + 1


@settings(deadline=None)
@given(hours=st.floats(1.0, 20.0), weeks=st.integers(0, 6), part=st.floats(0.01, 0.99), people=st.integers(1, 5))
def test_quotas_alone_give_whole_weeks_and_a_rest(hours: float, weeks: int, part: float, people: int) -> None:
    """Each week every account gives its hours; the last one ends within its first sessions."""
    resets = Periods(None, NOW + WEEK_S)
    members = [member(f"a{n}", session_s=hours * HOUR, weekly_s=hours * HOUR, resets=resets) for n in range(people)]
    each = hours * HOUR - 120.0
    steps = weeks * people * each + part * each
    found = simulate(course(*members, steps=math.ceil(steps)), 1)
    assert found.finish - NOW == pytest.approx(weeks * WEEK_S + 120.0 + math.ceil(steps) - weeks * people * each, abs=1)


@pytest.mark.parametrize("rate", [1 / 3, 0.1, 0.7, 1 / 3.48])
@pytest.mark.parametrize("sessions", [3, 7, 49])
def test_no_session_is_held_for_what_rounding_left_over(rate: float, sessions: int) -> None:
    steps = round(3480 * rate * sessions)
    exact = steps / sessions / 3480
    assert simulate(course(member(rate=exact), steps=steps), 1).count == sessions


def test_sessions_that_die_lose_what_they_had_not_committed() -> None:
    """The mean of what a session keeps, over many, against its expectation."""
    session, startup, interval, rate = 3000.0, 100.0, 250.0, 0.4
    done = simulate(
        course(member(session_s=session), steps=3_000_000, startup_s=startup, interval_s=interval, failure_rate=rate),
        3,
        keep=True,
    )
    commits = int((session - startup) // interval)
    kept = sum(interval * (1 - (startup + n * interval) / session) for n in range(1, commits + 1))
    expected = (1 - rate) * (session - startup) + rate * kept
    mean = sum(one.steps for one in done.sessions) / len(done.sessions)
    assert mean == pytest.approx(expected, rel=0.03)
    assert sum(one.died for one in done.sessions) / done.count == pytest.approx(rate, abs=0.05)


def test_the_last_session_commits_as_it_reaches_the_target() -> None:
    """Death after that costs nothing."""
    ends = [
        simulate(course(member(session_s=3600.0), steps=300, interval_s=1e9, failure_rate=0.99), seed)
        for seed in range(50)
    ]
    first = [one for one in ends if one.count == 1]
    assert {one.finish for one in first} == {NOW + 420.0} and len(first) > 30
    assert max(one.count for one in ends) < 6


@pytest.mark.parametrize(("died", "lived", "mean"), [(0, 0, 1 / 20), (4, 16, 5 / 40), (0, 180, 1 / 200)])
def test_the_failure_rate_is_what_history_and_prior_leave(died: int, lived: int, mean: float) -> None:
    asked = course(failure_rate=None, died=died, lived=lived)
    drawn = [failure_rate(asked, Chance(seed)) for seed in range(400)]
    assert sum(drawn) / 400 == pytest.approx(mean, rel=0.15)
    assert failure_rate(course(failure_rate=0.3), Chance(1)) == 0.3


def as_course(world: World) -> Scenario:
    """The same world in the words of planning."""
    members = tuple(
        Member(
            id=person.id,
            speeds=Speeds(tuple(rate / 60 for rate in person.rates), len(person.rates)),
            session_s=person.session * 60.0,
            weekly_s=person.weekly * 60.0,
            resets=Periods(Reset(day=DAYS[person.reset_day], hour=person.reset_hour, zone=person.reset_zone), 0.0),
            windows=Windows(parse(person.text), person.zone) if person.text else ALWAYS,
        )
        for person in world.people
    )
    return Scenario(
        now=world.start.timestamp(),
        step=0,
        target=world.steps,
        members=members,
        gaps=tuple(60.0 * gap for gap in world.gaps),
        startup_s=60.0 * world.startup,
        interval_s=60.0 * world.interval,
        failure_rate=world.fails,
        ttl_s=60.0 * world.ttl,
    )


STARTS = ("2026-03-04", "2026-03-24", "2026-10-20", "2026-10-01", "2026-06-03")
"""Before clock changes in New York, Berlin and Lord Howe, and far from any."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_the_median_is_within_a_day_of_a_simulation_by_minutes(seed: int) -> None:
    start = datetime.fromisoformat(f"{STARTS[seed % 5]}T{seed:02}:30").replace(tzinfo=ZoneInfo("UTC"))
    world = any_world(seed, start, fails=(0.0, 0.25)[seed % 2])
    minutes = Minutes(world)
    brute = median(minutes.run(seed) / 1440 for seed in range(9))
    ours = median((simulate(as_course(world), seed).finish - start.timestamp()) / DAY for seed in range(101))
    assert abs(ours - brute) < 1.0, f"{ours} and {brute} days"
    assert ours > 7


WINDOWS = ("mon-fri 18:00-23:00; sat,sun 09:00-22:00", "daily 22:00-02:00", "wed 01:00-05:00", None)


@st.composite
def courses(draw: st.DrawFn) -> Scenario:
    members = []
    for number in range(draw(st.integers(1, 6))):
        text = draw(st.sampled_from(WINDOWS))
        weekly = draw(st.none() | st.floats(1200.0, 40 * HOUR))
        rule = Reset(day="sun", hour=2, zone="Europe/Berlin")
        members.append(
            member(
                f"a{number}",
                draw(st.floats(0.1, 3.0)),
                draw(st.floats(300.0, 12 * HOUR)),
                weekly_s=weekly,
                left_s=draw(st.none() | st.floats(0.0, weekly)) if weekly else None,
                resets=Periods(rule, 0.0) if weekly else Periods(None, math.inf),
                windows=Windows(parse(text), "Europe/Berlin") if text else ALWAYS,
                given_s=draw(st.floats(0, 1e6)),
                fills=draw(st.booleans()),
                not_before=draw(st.sampled_from([0.0, NOW + 2 * DAY])),
            )
        )
    return course(*members, steps=draw(st.integers(1, 100_000)), failure_rate=draw(st.sampled_from([None, 0.0, 0.3])))


@settings(deadline=None)
@given(planned=courses(), seed=st.integers(0, 100))
def test_no_calendar_breaks_a_rule(planned: Scenario, seed: int) -> None:
    found = simulate(planned, seed, keep=True)
    who = {one.id: one for one in planned.members}
    for one, later in zip(found.sessions, found.sessions[1:], strict=False):
        bars = 180.0 if one.died else 0.0
        assert later.start >= one.end + 600.0 + bars - 1e-3, "one lease at a time, and time to hand it over"
    for one in found.sessions:
        windows, mine = who[one.account].windows, who[one.account]
        window = windows.around(one.start)
        assert window and window[0] <= one.start and one.end <= window[1] + 1e-3, "awake from beginning to end"
        assert one.end - one.start <= mine.session_s + 1e-3 and one.start >= mine.not_before
    for name, mine in who.items():
        for week in {mine.resets.after(one.start) for one in found.sessions if one.account == name}:
            if mine.weekly_s is not None:
                begins = Reset(day="sun", hour=2, zone="Europe/Berlin").week(week - 60)[0]
                used = sum(
                    max(0.0, min(s.end, week) - max(s.start, begins)) for s in found.sessions if s.account == name
                )
                assert used <= mine.weekly_s + 1e-3, "no more than a week's hours"
    durable = sum(one.steps for one in found.sessions)
    assert durable <= planned.target + 1e-6
    assert (found.finish < math.inf) == (abs(durable - planned.target) < 1e-6)
    assert simulate(planned, seed).finish == found.finish, "the same seed, the same calendar"


def test_whoever_trains_now_goes_on_first() -> None:
    rested, busy = member("rested"), member("busy", rate=2.0, given_s=9 * HOUR)
    found = simulate(course(rested, busy, open=OpenSession("busy", NOW + 1000.0)), 1, keep=True)
    first, second = found.sessions[:2]
    assert (first.account, first.start, first.end, first.steps) == ("busy", NOW, NOW + 1000.0, 2000.0)
    assert second.account == "rested" and second.start == NOW + 1600.0
    stranger = simulate(course(rested, open=OpenSession("gone", NOW + 1000.0)), 1, keep=True)
    assert stranger.sessions[0].start == NOW + 1600.0


def test_hours_about_to_be_lost_come_first_in_the_last_day_before_the_reset() -> None:
    resets = Periods(None, NOW + 2 * DAY)
    fills = member("fills", weekly_s=30 * HOUR, resets=resets, given_s=99 * HOUR, fills=True)
    found = simulate(course(member("other"), fills, steps=10**7), 1, keep=True)
    saved = [one.account for one in found.sessions if NOW + DAY <= one.start < NOW + 2 * DAY]
    before = [one.account for one in found.sessions if one.start < NOW + DAY]
    assert set(saved[:-1]) == {"fills"} and set(before) == {"other"}


def test_turns_are_even_by_the_hour_and_the_fast_go_first_within_it() -> None:
    people = [member("fast", rate=9.0), member("slow"), member("mid", rate=3.0)]
    found = simulate(course(*people, steps=400_000), 1, keep=True)
    order = [one.account for one in found.sessions[:9]]
    assert order == ["fast", "mid", "slow"] * 3
    half = simulate(course(*(replace(one, session_s=HOUR / 2) for one in people), steps=100_000), 1, keep=True)
    assert [one.account for one in half.sessions[:6]] == ["fast", "fast", "mid", "mid", "slow", "slow"]


def test_what_falls_after_a_reset_is_taken_from_the_new_hours() -> None:
    two_hours = member(session_s=2 * HOUR, weekly_s=2 * HOUR, resets=Periods(None, NOW + HOUR))
    found = simulate(course(two_hours, steps=20_000), 1, keep=True)
    assert [(one.start - NOW, one.end - one.start) for one in found.sessions[:3]] == [
        (0.0, 2 * HOUR),
        (2 * HOUR + 600.0, HOUR),
        (HOUR + WEEK_S, 2 * HOUR),
    ]


def test_nobody_who_ever_can_means_no_end() -> None:
    none_left = member(weekly_s=60.0, resets=Periods(None, NOW + WEEK_S))
    assert simulate(course(none_left), 1).finish == math.inf
    assert simulate(course(), 1).finish == math.inf
    assert simulate(course(member(), steps=0), 1).finish == NOW


def test_chance_is_even_and_a_matter_of_the_seed_alone() -> None:
    chance = Chance(7)
    numbers = [chance.uniform() for _ in range(20_000)]
    assert min(numbers) >= 0.0 and max(numbers) < 1.0 and abs(sum(numbers) / 20_000 - 0.5) < 0.01
    assert Chance(7).bits() == Chance(7).bits() != Chance(8).bits()
    assert {Chance(1).pick("ab") for _ in range(5)} == {Chance(1).pick("ab")}
    draws = [chance.beta(3, 17) for _ in range(2000)]
    assert sum(draws) / 2000 == pytest.approx(3 / 20, abs=0.01)
    other = random.Random(1)
    expected = median(other.betavariate(3, 17) for _ in range(4000))
    assert sorted(draws)[1000] == pytest.approx(expected, abs=0.01)


def test_resets_follow_the_providers_wall_clock() -> None:
    berlin = Periods(Reset(day="sun", hour=0, zone="Europe/Berlin"), 0.0)
    before = datetime(2026, 10, 20, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    first = berlin.after(before)
    assert berlin.after(first) - first == WEEK_S + HOUR, "the week of the clock change is an hour longer"
    assert berlin.after(before) == first, "asked again"
    fixed = Periods(None, NOW)
    assert fixed.after(NOW - 1) == NOW and fixed.after(NOW) == NOW + WEEK_S and fixed.after(NOW + 3 * WEEK_S) > NOW
