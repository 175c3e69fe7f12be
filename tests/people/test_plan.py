"""Plans: what they know, what they refuse to assume, when they give no date, how they are drawn."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.cells import cell_len

from relay.app.providers import shipped
from relay.app.views.plan import Look, draw, reason
from relay.core.ledger.state import Holder
from relay.people.availability import Unsure
from relay.people.participants import Assumed, Assumptions, Crew, PlanNote
from relay.people.periods import WEEK_S, Periods, parse_reset
from relay.people.quota import Quota
from relay.people.status import RunStatus
from relay.people.team import OpenSession
from tests.people.plans import DAY, HOUR, KAGGLE, NOW, OWN, link, of, planned, view
from tests.people.test_simulate import course, member
from tests.people.turns import halted
from tests.people.views import trained


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
    notes = {note.about: note.accounts for note in crew.notes}
    assert notes[Assumed.SPEED] == ("k", "own") and notes[Assumed.HOURS] == ("own",)
    assert notes[Unsure.UNSAID] == ("k", "own")


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
    why = {one["account"]: one["why"] for one in document["left_out"]}
    assert set(why) == {"strange", "bare"} and "H100" in why["strange"] and "H100" not in why["bare"]
    assert "--steps-per-hour" in text


def test_a_speed_that_is_given_and_not_used_is_told() -> None:
    other = replace(OWN, id="other", gpu="t4")
    _, text = planned(view(other, links=(link("k", 1, gpu="Tesla T4"),)), Assumptions(7.0))
    assert "--steps-per-hour 7 " in text and "ASSUMED" not in text


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
    assert [reason(one) for one in crew.left_out] == [why] and not crew.members


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
    assert unknown.members[0].session_s == HOUR and PlanNote(Assumed.LENGTH, ("own",)) in unknown.notes


def test_gaps_and_deaths_come_from_history_and_else_are_called_assumed() -> None:
    links = (*(link("own", n) for n in range(1, 6)), link("own", 6, end="no sign of life"))
    crew = Crew(view(OWN, links=links), shipped(), Assumptions(startup_s=60.0))
    found = crew.course()
    assert found.gaps == pytest.approx((600.0,) * 5) and (found.died, found.lived) == (1, 5)
    assert found.startup_s == 60.0 and not {note.about for note in crew.notes} & {
        Assumed.GAPS,
        Assumed.STARTUP,
        Assumed.FAILURES,
    }
    bare = Crew(view(OWN, links=(link("own", 1),)), shipped())
    assert bare.course().gaps == (600.0,)
    assert {PlanNote(Assumed.GAPS), PlanNote(Assumed.STARTUP)} <= set(bare.notes)


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
    assert Crew(seen, shipped(), Assumptions(every_steps=500)).course().interval_s == 250.0
    assert Crew(seen, shipped(), Assumptions(every_steps=5000)).course().interval_s == 600.0
    assert seen.state
    slow = replace(seen, state=seen.state.model_copy(update={"metrics": {"upload_s": 900.0}}))
    assert Crew(slow, shipped()).course().interval_s == 900.0


@pytest.mark.parametrize(
    ("seen", "state", "said"),
    [
        (view(), "unknown", "no account is registered"),
        (view(OWN, links=(link("own", 1),), step=50_000), "finished", "has reached its target"),
        (RunStatus("p", "r", 100, NOW, halted(), accounts=(OWN,)), "halted", "is halted, so no date: loss is nan"),
        (RunStatus("p", "r", 100, NOW, None, accounts=(OWN,)), "unknown", "no session of its own measured"),
        (view(OWN, links=(link("own", 1, started=NOW + 1),)), "unknown", "no session of its own measured"),
    ],
)
def test_no_date_where_there_is_none(seen: RunStatus, state: str, said: str) -> None:
    document, text = planned(seen)
    assert document["state"] == state and document["finish"] is None and said in text
    assert document["schema"] == "relay.plan/1"


@pytest.mark.slow
def test_more_than_two_years_is_said_to_be_so() -> None:
    document, text = planned(
        view(replace(OWN, availability="sat 10:00-10:20", zone="UTC"), links=(link("own", 1, 0.01),))
    )
    assert document["finish"] == {"p10": None, "p50": None, "p90": None} and text.count("two years") == 3
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
    shown = {int(week) for week in re.findall(r"^\D{0,4}(\d+)\b", text, re.MULTILINE)}
    assert {1, 55, len(found.weeks)} <= shown and 56 not in shown


def test_moments_are_shown_in_the_readers_zone() -> None:
    text = planned(view(OWN, links=(link("own", 1),)), zone="Asia/Tokyo")[1]
    assert " JST" in text and "Sat 2026-11-28 21:00" not in text.splitlines()[0]
    assert re.search(r"\b1\b\W+2026-11-28 21:00", text)


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
