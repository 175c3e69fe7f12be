"""What limits a plan, what would help, how wide its range is, and what is said where it knows little."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace

import pytest

from relay.app.providers import shipped
from relay.app.views.plan import Look, draw
from relay.people.participants import Assumed, Assumptions, Crew, PlanNote
from relay.people.periods import WEEK_S, Periods
from relay.people.plan import CommitInterval, Range, finish_range, forecast, spread
from relay.people.status import AccountRow
from relay.people.team import Speeds
from tests.people.plans import DAY, HOUR, NOW, OWN, link, of, planned, preset, view
from tests.people.test_simulate import course, member


def test_where_no_session_dies_no_interval_is_said_to_lose_anything() -> None:
    text = draw(preset("guide"), "", "UTC", (), Look())
    assert "100 steps" not in text and "loses 0 s" not in text
    stalls = replace(preset("guide"), intervals=(CommitInterval(100, 0.0, 0.2), CommitInterval(500, 0.0, 90.0)))
    text = draw(stalls, "", "UTC", (), Look())
    told = re.findall(r"(\d+) steps stalls (?:less than )?(\d+ \w+)", " ".join(text.split()))
    assert told == [("100", "1 s"), ("500", "2 min")]


@pytest.mark.slow
def test_a_session_that_dies_loses_no_more_than_it_had() -> None:
    """One account, an hour a session at a step a second, one in two dies: half of half an hour at most."""
    one = course(member(session_s=HOUR), steps=10**6, gaps=(60.0,), startup_s=0.0, failure_rate=0.5, interval_s=100.0)
    found = forecast(one, every_steps=100_000)
    assert found
    lost, dying = {each.steps: each.lost_s for each in found.intervals}, found.middle.count * 0.5
    assert lost[100] == pytest.approx(dying * 50), "half an interval of 100 s each"
    assert lost[100_000] == pytest.approx(found.middle.trained_s / 4), "all of which half of the sessions had half"


def test_accounts_whose_sessions_are_all_start_up_are_named() -> None:
    short = AccountRow("short", "S", "ready", gpu="T4", session_minutes=2.0)
    crew = Crew(
        view(short, replace(short, id="long", session_minutes=3.0)), shipped(), Assumptions(3600.0, startup_s=120.0)
    )
    assert PlanNote(Assumed.STARTUP_ONLY, ("short",)) in crew.notes


@pytest.mark.slow
def test_a_start_up_as_long_as_every_session_is_said_to_be_the_limit() -> None:
    found = preset("guide", startup_s=HOUR, fails=0.0)
    assert found.limit == "start-up" and found.finish.p10 == math.inf
    assert "1 h 00 min" in draw(found, "", "UTC", (), Look())
    assert preset("guide").limit == "quotas"


def test_an_assumed_speed_is_called_so() -> None:
    measured = replace(OWN, id="measured")
    seen = view(replace(OWN, id="bare"), measured, links=(link("measured", 1),))
    document, text = planned(seen, Assumptions(steps_per_hour=3600.0))
    assert document["assumed"] == ["bare"] and document["state"] == "planned"
    (line,) = [line for line in text.splitlines() if "ASSUMED" in line]
    assert "3,600 steps" in line and "bare" in line
    assert Crew(seen, shipped(), Assumptions(steps_per_hour=3600.0)).members[1].speeds.samples == (2.0,), (
        "measured is better"
    )


def test_what_limits_is_named() -> None:
    week = Periods(None, NOW + WEEK_S)
    hour = [member(f"a{n}", weekly_s=HOUR, resets=week) for n in range(3)]
    assert of(course(*hour, steps=40_000)).shares.limit == "quotas"
    assert of(course(member(session_s=12 * HOUR), steps=400_000)).shares.limit == "lease"
    assert of(course(member(), steps=40_000, gaps=(2 * HOUR,))).shares.limit == "hand-overs"
    asleep = Crew(view(replace(OWN, availability="sat 10:00-12:00", zone="UTC"), links=(link("own", 1),)), shipped())
    found = of(asleep.course())
    assert found.shares.limit == "availability"
    assert sum((found.shares.trained, found.shares.handed_over, found.shares.quota, found.shares.asleep)) == (
        pytest.approx(1.0)
    )


def test_one_more_account_helps_where_quotas_limit_and_not_where_the_lease_does() -> None:
    week = Periods(None, NOW + WEEK_S)
    slow = [member(f"s{n}", weekly_s=HOUR, resets=week, kind="slow") for n in range(2)]
    fast = member("f", rate=5.0, weekly_s=2 * HOUR, resets=week, kind="fast")
    helps = of(course(*slow, fast, steps=200_000)).helps
    assert [one.kind for one in helps] == ["fast", "slow"] and helps[0].saves_s > 7 * DAY > helps[1].saves_s >= 0
    saturated = of(course(member(session_s=12 * HOUR), steps=400_000))
    assert saturated.helps[0].saves_s == 0.0


def test_what_an_interval_costs_is_arithmetic() -> None:
    found = forecast(course(member(session_s=10 * HOUR), steps=100_000, failure_rate=0.1), 500, snapshot_s=0.05)
    assert found is not None
    by_steps = {one.steps: one for one in found.intervals}
    assert set(by_steps) == {100, 250, 500, 1000, 2500}
    pace = 1.0  # seconds a step
    assert by_steps[1000].lost_s == pytest.approx(found.middle.count * 0.1 * 500 * pace)
    assert by_steps[1000].stall_s == pytest.approx(0.05 * 100)
    assert of(course(member(), steps=100)).intervals[0].stall_s is None


def test_weeks_add_up_to_the_whole() -> None:
    found = of(course(member(weekly_s=HOUR, resets=Periods(None, NOW + WEEK_S)), step=500, steps=20_000))
    assert sum(week.steps for week in found.weeks) == pytest.approx(19_500)
    assert sum(week.sessions for week in found.weeks) == found.middle.count == len(found.middle.sessions)
    assert sum(week.hours for week in found.weeks) * HOUR == pytest.approx(found.middle.trained_s)
    assert [week.begins for week in found.weeks] == [NOW + n * WEEK_S for n in range(len(found.weeks))]
    assert found.weeks[-1].done == 1.0 and found.middle.finish == found.finish.p50


def test_few_measurements_give_a_wide_range_and_the_prior_too() -> None:
    unsure = course(replace(member(), speeds=Speeds((0.5, 1.5), 2)), steps=40_000, failure_rate=None)
    sure = course(replace(member(), speeds=Speeds((0.5, 1.5) * 50, 100)), steps=40_000)
    wide, narrow = of(unsure).finish, of(sure).finish
    assert wide.p90 - wide.p10 > 3 * (narrow.p90 - narrow.p10) > 0
    assert wide.p10 <= wide.p50 <= wide.p90
    assert spread([3.0, 1.0, 2.0]) == Range(1.0, 2.0, 3.0)


def test_the_range_alone_is_near_the_plans() -> None:
    asked = course(member(), steps=100_000, failure_rate=0.1)
    short = finish_range(asked)
    assert short and abs(short.p50 - of(asked).finish.p50) < DAY / 4
    assert finish_range(course()) is None
    began = time.process_time()
    assert finish_range(course(member(session_s=125.0), steps=10**8)) is None, "two years of sessions of two minutes"
    assert time.process_time() - began < 5
