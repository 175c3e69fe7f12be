"""What recent sessions measured: speeds of those that ended well, gaps within a day, deaths; nothing yet to come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.gpus import same_gpu
from relay.core.ledger.state import Link
from relay.core.session.ends import ENDS, FAILURES
from relay.people.history import history, speeds

NOW, HOUR, DAY = 1_795_867_200.0, 3600.0, 86400.0


def link(**changes: Any) -> Link:
    values: dict[str, Any] = {
        "epoch": 1, "account": "a", "from_step": 0, "to_step": 3600, "commits": 2, "started": NOW - 5 * DAY,
        "seconds": HOUR, "ended": NOW - 4 * DAY, "end": "budget used", "gpu": None,
    }  # fmt: skip
    return Link(**(values | changes))


def test_sessions_that_ended_well_measure_a_speed() -> None:
    links = [link(), link(account="b", to_step=7200, gpu="Tesla T4"), link(account="b", to_step=1800, gpu="NVIDIA L4")]
    found = history(links, NOW)
    assert found.of_account("a") == (1.0,) and found.of_account("b") == (2.0, 0.5) and found.of_account("c") == ()
    assert found.on_gpu("T4") == (2.0,) and found.on_gpu("H100") == ()
    assert found.gpu_of("b") == "NVIDIA L4" and found.gpu_of("a") is None
    assert found.longest == {"a": (1, HOUR), "b": (2, HOUR)}
    assert (found.died, found.lived) == (0, 3)


def test_the_session_under_way_measures_an_account_that_nothing_else_does() -> None:
    now = link(account="b", epoch=2, to_step=7200, started=NOW - 2 * HOUR, ended=None, end="open")
    assert history([link(), now], NOW).of_account("b") == (2.0,)
    assert history([link(account="b"), now], NOW).of_account("b") == (1.0,), "whole sessions say more"
    before = link(account="b", to_step=0, commits=0, started=NOW - 60, seconds=0.0, ended=None, end="open")
    assert history([link(), before], NOW).of_account("b") == ()


@pytest.mark.parametrize(
    ("changes", "died"),
    [
        ({"end": "no sign of life"}, 1),
        ({"end": "past its latest end"}, 1),
        ({"end": "crashed"}, 1),
        ({"end": "spot notice; last upload did not fit"}, 1),
        ({"to_step": 0}, 1),
        ({"end": "spot notice"}, 0),
        ({"end": "target reached"}, 0),
    ],
)
def test_deaths_are_counted_and_measure_no_speed(changes: dict[str, Any], died: int) -> None:
    found = history([link(**changes)], NOW)
    assert (found.died, found.lived) == (died, 1 - died)
    assert bool(found.links) == (not died)


@pytest.mark.parametrize(
    "changes",
    [
        {"end": "pushed"},
        {"end": "nothing left to push"},
        {"end": "open"},
        {"end": "account trains another run"},
        {"seconds": 0.0},
    ],
)
def test_what_was_no_session_says_nothing(changes: dict[str, Any]) -> None:
    found = history([link(**changes)], NOW)
    assert (found.links, found.gaps, found.died, found.lived) == ((), (), 0, 0)


def test_every_end_a_session_can_have_is_known() -> None:
    """A failure that is not counted as one would make plans too good."""
    planned = ENDS.keys() - {"fenced", "blocked"}
    ends = {ENDS[end][1] for end in planned} | {"spot notice of aws"}
    assert all(history([link(end=end)], NOW).lived for end in ends)
    failures = set(FAILURES.values()) - {"account trains another run"}
    assert all(
        history([link(end=end)], NOW).died for end in failures | {ENDS["blocked"][1], "fenced", "crashed", "failed"}
    )


def test_what_is_dated_after_now_is_left_out() -> None:
    """Another machine's clock was ahead, or a stranger wrote it."""
    assert history([link(started=NOW + 1)], NOW).links == ()


def test_gaps_are_waits_of_less_than_a_day() -> None:
    first, soon = link(), link(started=NOW - 5 * DAY + HOUR + 300)
    late, before = link(started=NOW - DAY), link(started=NOW - DAY - 60)
    assert [begins - ends for ends, begins in history([first, soon, late, before], NOW).gaps] == [300.0]


def test_short_sessions_count_where_there_is_no_other() -> None:
    brief = link(seconds=2.0, to_step=20)
    assert history([brief], NOW).of_account("a") == (10.0,)
    assert history([brief, link()], NOW).of_account("a") == (1.0,)


@pytest.mark.parametrize(
    ("said", "measured", "same"),
    [
        ("T4", "Tesla T4", True),
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("A100 40GB", "NVIDIA A100-SXM4-40GB", True),
        ("A100 80GB", "NVIDIA A100-SXM4-40GB", False),
        ("T4", "Tesla T40", False),
        ("", "Tesla T4", False),
        ("???", "Tesla T4", False),
    ],
)
def test_gpus_are_compared_by_words(said: str, measured: str, same: bool) -> None:
    assert same_gpu(said, measured) is same


@given(
    seconds=st.floats(0, 1e9),
    steps=st.integers(0, 2**53 - 1),
    started=st.floats(0, 9e10),
    end=st.sampled_from(["budget used", "no sign of life", "\u202eevil"]),
)
def test_no_link_gives_a_speed_that_is_no_number(seconds: float, steps: int, started: float, end: str) -> None:
    found = history([link(seconds=seconds, to_step=steps, started=started, end=end), link()], NOW)
    assert all(0 < rate < 1e20 for rate in found.of_account("a"))
    assert speeds(()) is None
