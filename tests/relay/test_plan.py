"""Plans: what they know, what they refuse to assume, what limits and helps, how they are drawn and told."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from relay.crew import Crew, Wish
from relay.periods import WEEK_S, Periods
from relay.plan import Forecast, Interval, Range, finish_range, forecast, spread
from relay.plan_presets import PRESETS
from relay.plan_text import Look, draw
from relay.planned import Plan, plan_of
from relay.policy import shipped
from relay.quota import Quota
from relay.reset import parse_reset
from relay.state import Holder, Link
from relay.status import AccountRow, View
from relay.team import Course, OpenSession, Speeds
from tests.relay.cli import Desk
from tests.relay.test_handoff import halted
from tests.relay.test_simulate import course, member
from tests.relay.views import trained

NOW, HOUR, DAY = 1_795_867_200.0, 3600.0, 86400.0
PLAIN = Look(columns=100)


def link(account: str, epoch: int, rate: float = 2.0, hours: float = 1.0, **changes: Any) -> Link:
    """A session that ended some days ago, ten minutes after the one before."""
    started = NOW - 9 * DAY + epoch * (hours * HOUR + 600)
    values: dict[str, Any] = {
        "epoch": epoch, "account": account, "from_step": 0, "to_step": round(rate * hours * HOUR), "commits": 3,
        "started": started, "seconds": hours * HOUR, "ended": started + hours * HOUR, "end": "budget used",
    }  # fmt: skip
    return Link(**(values | changes))


def view(*rows: AccountRow, links: tuple[Link, ...] = (), step: int = 10_000, **changes: Any) -> View:
    state = trained(epoch=9, step=step, target_steps=50_000, links=links, holder=None, metrics={})
    values: dict[str, Any] = {
        "project": "p", "run": "r", "target_steps": 50_000, "now": NOW, "state": state, "accounts": rows,
    }  # fmt: skip
    return View(**(values | changes))


def planned(seen: View, wish: Wish | None = None, zone: str = "UTC", look: Look = PLAIN) -> Plan:
    return plan_of(seen, shipped(), wish or Wish(), zone, look)


KAGGLE = AccountRow(
    "k", "Kaggle", "ready", provider="kaggle", session_minutes=720.0, weekly_hours=30.0, gpu="T4",
    quota=Quota(5 * HOUR, 30 * HOUR, "estimated", NOW, NOW + 12 * HOUR),
)  # fmt: skip
OWN = AccountRow("own", "Lab", "ready", provider="lab", session_minutes=60.0)


def of(course_: Course) -> Forecast:
    found = forecast(course_)
    assert found is not None
    return found


def test_an_account_is_planned_with_what_is_known_of_it() -> None:
    crew = Crew(view(KAGGLE, OWN, links=(link("k", 1, gpu="Tesla T4"), link("own", 2, rate=3.0))), shipped())
    kaggle, own = crew.members
    assert (kaggle.speeds.samples, kaggle.session_s, kaggle.weekly_s, kaggle.left_s) == (
        (2.0,),
        720 * 60,
        108000,
        18000,
    )
    assert kaggle.resets.after(NOW) == NOW + 12 * HOUR and kaggle.kind == "kaggle, Tesla T4" and not kaggle.fills
    assert kaggle.resets.after(NOW + DAY) == NOW + 12 * HOUR + WEEK_S, "Kaggle's rule, Saturday 00:00 UTC"
    assert (own.speeds.samples, own.weekly_s, own.left_s) == ((3.0,), None, None)
    notes = " ".join(crew.notes)
    assert "k, own: one session measured, so the range knows nothing of how speeds differ." in notes
    assert "own: no weekly hours known, so planned around the clock." in notes
    assert "k, own: availability unknown, taken as always." in notes


def test_an_accounts_own_reset_goes_by_the_clocks_of_its_zone() -> None:
    friday = datetime(2026, 10, 23, 12, tzinfo=UTC).timestamp()
    rule = parse_reset("fri 18:00 Europe/Berlin")
    ends = rule.week(friday)[1]
    own = replace(OWN, weekly_hours=5.0, reset=rule, quota=Quota(HOUR, 5 * HOUR, "declared", friday, ends))
    resets = Crew(view(own, now=friday), shipped()).resets_of(own)
    assert (resets.after(friday), resets.after(ends)) == (ends, ends + WEEK_S + HOUR), "summer time ends on the Sunday"


def test_a_speed_measured_on_the_same_gpu_counts_for_who_has_not_trained() -> None:
    other = replace(OWN, id="other", gpu="t4")
    crew = Crew(view(other, links=(link("k", 1, gpu="Tesla T4"),)), shipped())
    assert crew.members[0].speeds.samples == (2.0,) and not crew.left_out


def test_a_speed_that_nobody_measured_is_never_assumed() -> None:
    strange, bare = replace(OWN, id="strange", gpu="H100"), replace(OWN, id="bare")
    document, text = planned(view(strange, bare, links=(link("k", 1, gpu="Tesla T4"),)))
    assert (document["state"], document["finish"]) == ("unknown", None)
    assert {one["account"]: one["why"] for one in document["left_out"]} == {
        "strange": "no session on H100 was measured",
        "bare": "no GPU declared, no session of its own measured",
    }
    assert text.startswith("No date for run r") and "--steps-per-hour N" in text


def test_a_speed_that_is_given_and_not_used_is_told() -> None:
    other = replace(OWN, id="other", gpu="t4")
    _, text = planned(view(other, links=(link("k", 1, gpu="Tesla T4"),)), Wish(7.0))
    assert "--steps-per-hour 7 is not used" in text and "ASSUMED" not in text


def preset(name: str, startup_s: float | None = None, fails: float | None = None) -> Forecast:
    found = forecast(PRESETS[name].course(NOW, None, startup_s, fails))
    assert found
    return found


def test_where_no_session_dies_no_interval_is_said_to_lose_anything() -> None:
    text = draw(preset("guide"), "", "UTC", (), Look())
    assert "to the end: no session is taken to die, so none loses anything; what a snapshot stalls was not" in text
    assert "every 100 steps" not in text and "loses 0 s" not in text
    stalls = replace(preset("guide"), intervals=(Interval(100, 0.0, 0.2), Interval(500, 0.0, 90.0)))
    assert "anything; every 100 steps stalls less than 1 s; every 500 steps stalls 2 min." in draw(
        stalls, "", "UTC", (), Look()
    )


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
    crew = Crew(view(short, replace(short, id="long", session_minutes=3.0)), shipped(), Wish(3600.0, startup_s=120.0))
    assert "short: no session is longer than the start-up, so nothing would be trained." in crew.notes


@pytest.mark.slow
def test_a_start_up_as_long_as_every_session_is_said_to_be_the_limit() -> None:
    found = preset("guide", startup_s=HOUR, fails=0.0)
    assert found.limit == "start-up" and found.finish.p10 == math.inf
    assert "it takes 1 h 00 min, no session is longer, and no step is ever gained" in draw(found, "", "UTC", (), Look())
    assert preset("guide").limit == "quotas"


def test_an_assumed_speed_is_called_so() -> None:
    measured = replace(OWN, id="measured")
    seen = view(replace(OWN, id="bare"), measured, links=(link("measured", 1),))
    document, text = planned(seen, Wish(steps_per_hour=3600.0))
    assert document["assumed"] == ["bare"] and document["state"] == "planned"
    assert "ASSUMED, not measured: 3,600 steps an hour of bare." in text
    assert "measured: one session measured" in text and "bare, measured: one" not in text
    assert Crew(seen, shipped(), Wish(steps_per_hour=3600.0)).members[1].speeds.samples == (2.0,), "measured is better"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": "blocked"}, "blocked, which ends by hand only"),
        ({"state": "retired"}, "retired, which ends by hand only"),
        ({"state": "paused"}, "paused, which ends by hand only"),
        ({"confirmed": False}, "its person has not confirmed to be a co-author of this run"),
    ],
)
def test_whoever_cannot_be_asked_is_left_out(changes: dict[str, Any], why: str) -> None:
    crew = Crew(view(replace(OWN, **changes), links=(link("own", 1),)), shipped())
    assert [one.why for one in crew.left_out] == [why] and not crew.members


def test_a_state_that_ends_by_itself_is_waited_for() -> None:
    for state in ("cooling", "quota_exceeded", "paused"):
        crew = Crew(view(replace(OWN, state=state, until=NOW + DAY), links=(link("own", 1),)), shipped())
        assert crew.members[0].not_before == NOW + DAY
    assert of(crew.course()).finish.p10 > NOW + DAY


def test_from_three_sessions_on_their_length_counts() -> None:
    long = replace(OWN, session_minutes=720.0)
    twice = Crew(view(long, links=tuple(link("own", n) for n in (1, 2))), shipped())
    thrice = Crew(view(long, links=tuple(link("own", n) for n in (1, 2, 3))), shipped())
    assert twice.members[0].session_s == 720 * 60 and thrice.members[0].session_s == HOUR + 120
    unknown = Crew(view(replace(OWN, session_minutes=None, gpu="t4"), links=(link("k", 1, gpu="T4"),)), shipped())
    assert unknown.members[0].session_s == HOUR and "session length unknown" in " ".join(unknown.notes)


def test_gaps_and_deaths_come_from_history_and_else_are_called_assumed() -> None:
    links = (*(link("own", n) for n in range(1, 6)), link("own", 6, end="no sign of life"))
    crew = Crew(view(OWN, links=links), shipped(), Wish(startup_s=60.0))
    found = crew.course()
    assert found.gaps == pytest.approx((600.0,) * 5) and (found.died, found.lived) == (1, 5)
    assert found.startup_s == 60.0 and not [note for note in crew.notes if "assumed" in note]
    bare = Crew(view(OWN, links=(link("own", 1),)), shipped())
    assert bare.course().gaps == (600.0,)
    assert {"10 min between", "2 min from ma"} <= {note[:14] for note in bare.notes} | {
        note[:13] for note in bare.notes
    }


def test_a_night_between_two_sessions_is_no_gap() -> None:
    """Everybody slept; the calendar knows that already."""
    begins = datetime(2026, 11, 20, 20, tzinfo=UTC).timestamp()
    links = tuple(link("own", n, started=begins + n * DAY, seconds=3 * HOUR) for n in range(5))
    nightly = replace(OWN, availability="daily 18:00-24:00", zone="UTC")
    assert Crew(view(nightly, links=links), shipped()).course().gaps == (3 * HOUR,) * 4
    assert Crew(view(OWN, links=links), shipped()).course().gaps == (21 * HOUR,) * 4


def test_whoever_trains_now_is_planned_to_its_end() -> None:
    seen = view(replace(OWN, state="active"), replace(OWN, id="other"), links=(link("own", 1), link("other", 2)))
    assert seen.state
    since = NOW - 600.0
    holder = Holder(
        session="1" * 32, account="own", epoch=9, since=since, ttl_s=180.0, latest_end=NOW + 900.0, target_steps=50_000
    )
    live = replace(seen, state=seen.state.model_copy(update={"holder": holder}), sign_of_life=NOW - 5)
    found = Crew(live, shipped()).course()
    assert found.open == OpenSession("own", NOW + 900.0) and found.members[0].not_before == 0.0
    endless = live.state.model_copy(update={"holder": holder.model_copy(update={"latest_end": None})})
    assert Crew(replace(live, state=endless), shipped()).course().open == OpenSession("own", since + HOUR)
    dead = replace(live, sign_of_life=None, state=seen.state)
    assert Crew(dead, shipped()).course().open is None
    elsewhere = Crew(seen, shipped())
    assert elsewhere.members[0].not_before == NOW + HOUR, "active in another run: for one session, as far as is known"


def test_a_commit_is_due_by_steps_or_time_and_waits_for_a_slow_upload() -> None:
    seen = view(OWN, links=(link("own", 1),))
    assert Crew(seen, shipped(), Wish(every_steps=500)).course().interval_s == 250.0
    assert Crew(seen, shipped(), Wish(every_steps=5000)).course().interval_s == 600.0
    assert seen.state
    slow = replace(seen, state=seen.state.model_copy(update={"metrics": {"upload_s": 900.0}}))
    assert Crew(slow, shipped()).course().interval_s == 900.0


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


@pytest.mark.parametrize(
    ("seen", "state", "said"),
    [
        (view(), "unknown", "no account is registered"),
        (view(OWN, links=(link("own", 1),), step=50_000), "finished", "has reached its target"),
        (View("p", "r", 100, NOW, halted(), accounts=(OWN,)), "halted", "is halted, so no date: loss is nan"),
        (View("p", "r", 100, NOW, None, accounts=(OWN,)), "unknown", "no session of its own measured"),
        (view(OWN, links=(link("own", 1, started=NOW + 1),)), "unknown", "no session of its own measured"),
    ],
)
def test_no_date_where_there_is_none(seen: View, state: str, said: str) -> None:
    document, text = planned(seen)
    assert document["state"] == state and document["finish"] is None and said in text
    assert document["schema"] == "relay.plan/1"


def test_more_than_two_years_is_said_to_be_so() -> None:
    document, text = planned(
        view(replace(OWN, availability="sat 10:00-10:20", zone="UTC"), links=(link("own", 1, 0.01),))
    )
    assert document["finish"] == {"p10": None, "p50": None, "p90": None} and text.count("not within two years") == 3
    json.dumps(document, allow_nan=False)


HOSTILE = replace(
    OWN, id="h" * 64, label="\x1b[2J\u202eevil", gpu="\x1b[31mH100", provider="no-such-provider",
    availability="\x1b]0;", zone="../../etc/passwd", seconds=1e300,
)  # fmt: skip


@pytest.mark.parametrize("columns", [None, 40, 60, 80, 137, 200, 500])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_plan_fits_its_width(columns: int | None, ascii_only: bool) -> None:
    links = (*(link("h" * 64, n) for n in range(1, 4)), link("k", 4, gpu="T4"))
    seen = view(HOSTILE, KAGGLE, *(replace(OWN, id=f"own_{n}", gpu="T4") for n in range(20)), links=links)
    text = planned(seen, look=Look(ascii_only, columns))[1]
    assert "\x1b" not in text and "\u202e" not in text
    limit = max(60, min(200, columns or 10**9))
    assert columns is None or max(cell_len(line) for line in text.splitlines()) <= limit
    assert not ascii_only or text.isascii()
    drawn = "#" if ascii_only else "█"
    assert (drawn in text) == (columns is not None), "bars are for terminals"


def test_a_very_long_plan_lists_its_first_and_last_weeks() -> None:
    found = of(course(member(weekly_s=HOUR, resets=Periods(None, NOW + WEEK_S)), steps=3480 * 90))
    text = draw(found, "title", "UTC", (), Look(True, 80))
    assert "  55  " in text and "  56  " not in text and f"  {len(found.weeks)}  " in text and "more" in text


def test_moments_are_shown_in_the_readers_zone() -> None:
    text = planned(view(OWN, links=(link("own", 1),)), zone="Asia/Tokyo")[1]
    assert " JST" in text and "Sat 2026-11-28 21:00" not in text.splitlines()[0]
    assert "   1  2026-11-28 21:00" in text


@pytest.mark.slow
def test_a_thousand_accounts_and_a_year_take_seconds() -> None:
    rows = tuple(
        replace(KAGGLE, id=f"a{n:04}", availability=("daily 06:00-24:00", None)[n % 2], zone="Europe/Berlin")
        for n in range(1000)
    )
    links = tuple(link(f"a{n:04}", n + 1, rate=1.0, hours=11.0, gpu="T4") for n in range(3))
    seen = replace(view(*rows, links=links), state=trained(step=0, target_steps=30_000_000, links=links, holder=None))
    began = time.process_time()
    document, _ = planned(seen)
    assert document["calendars"] >= 100 and document["accounts"] == 1000
    assert document["in_s"]["p50"] > 350 * DAY
    assert time.process_time() - began < 60


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "desk", {"RELAY_OWNER": "Ana"})


def test_a_plan_before_anything_exists_writes_nothing(desk: Desk) -> None:
    assert "no account is registered" in desk("plan", "--run", "r").out
    assert desk("plan", "--run", "r", "--json").json["state"] == "unknown"
    assert "No account is registered" in desk("next", "--run", "r").out
    assert list(desk.folder.iterdir()) == []


def test_a_run_is_planned_from_its_own_sessions(desk: Desk) -> None:
    desk("register", "account_1", "Ana's Colab")
    desk.train(4)
    desk.train(8)
    files = sorted(path for path in desk.folder.rglob("*") if path.is_file())
    found = desk("plan", "--run", "r", "--json", "target_steps=1000000").json
    assert found["state"] == "finished", "a run remembers its own target"
    desk.kind.made = {"step_s": 0.2}
    desk.train(3000, "--budget-minutes", "0.08", code=75)
    found = desk("plan", "--run", "r", "--json", "--zone", "Europe/Berlin").json
    assert found["state"] == "planned" and found["zone"] == "Europe/Berlin" and found["accounts"] == 1
    text = desk("plan", "--run", "r", "--ascii").out
    assert "p50" in text and text.isascii()
    proposed = desk("next", "--run", "r", "--json", "--account", "account_1").json
    assert proposed["schema"] == "relay.next/2" and proposed["you"] is True and proposed["label"] == "Ana's Colab"
    assert desk("next", "--run", "r", "--redact", "--json").json["label"] == "account_1"
    assert set(files) <= {path for path in desk.folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--preset", "giude"), 2, "Did you mean guide?"),
        (("--preset", "guide", "--zone", "Mars/Olympus"), 78, "is not a time zone"),
        (("--steps-per-hour", "nan"), 2, ""),
        (("--failure-rate", "1"), 2, ""),
    ],
)
def test_what_cannot_be_planned_is_refused(desk: Desk, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in desk("plan", *words, code=code).err


def test_presets_need_no_store_and_tell_what_replaces_their_numbers(desk: Desk) -> None:
    text = desk(
        "plan", "--preset", "guide", "--steps-per-hour", "900", "--startup-minutes", "9", "--failure-rate", "0.1"
    ).out
    assert "ASSUMED in place of its speed: 900 steps an hour." in text
    assert "9 min of each hour train nothing" in text and "10% of sessions die" in text
    for name in PRESETS:
        found = desk("plan", "--preset", name, "--json", TZ="America/New_York").json
        assert found["preset"] == name and found["zone"] == "America/New_York"
    assert list(desk.folder.iterdir()) == []


def hours(name: str, rate: float | None = None, startup_s: float | None = None) -> float:
    """Hours to the median end of a preset."""
    found = of(PRESETS[name].course(NOW, rate, startup_s, 0.0))
    assert math.isfinite(found.finish.p50)
    return (found.finish.p50 - NOW) / HOUR


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "plan.md"


@pytest.mark.slow
def test_the_page_says_what_the_plan_says() -> None:
    """The guide's claims, recomputed; the page's numbers are the code's."""
    page = PAGE.read_text()
    for rate in (1000, 1250, 1500):
        days = [hours("guide", rate, (60 - minutes) * 60) / 24 for minutes in (45, 50, 60)]
        assert f"| {rate:,} | {days[0]:.1f} | {days[1]:.1f} | {days[2]:.1f} |" in page
    dying = of(PRESETS["guide"].course(NOW, 1000, 15 * 60, 0.05)).finish.p50 - NOW
    assert f"take {dying / DAY:.1f} days" in page
    waiting = of(PRESETS["guide"].course(NOW, None, None, None)).shares
    assert f"{100 * waiting.quota:.0f} % of the time is waiting for resets" in page and waiting.limit == "quotas"
    assert of(PRESETS["guide"].course(NOW, 1250, None, None)).helps[0].saves_s == pytest.approx(7 * DAY, abs=DAY)


def test_the_page_says_what_measured_speeds_give() -> None:
    page = PAGE.read_text()
    ours, reference = 3600 / 0.085, 3600 / 0.152
    assert f"an hour is {ours:,.0f} steps: 50,000 take {50_000 / ours:.1f} hours of" in page
    assert f"two people's hours, {hours('h100'):.1f} hours by the clock" in page
    assert f"{50_000 / reference:.1f} hours, three people's, {hours('h100', reference):.1f} by the clock" in page
    sessions = [of(PRESETS["h100"].course(NOW, rate, None, 0.0)).middle.count for rate in (ours, reference)]
    assert sessions == [2, 3]
