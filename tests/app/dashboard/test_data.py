"""The document: bounded for every run, true to the ledger, and honest about unknown values."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.app.dashboard.curves import MOST_POINTS, thinned
from relay.app.dashboard.data import ADVICE, Seen, incident_rows
from relay.app.dashboard.history import CommitEvent, RewindEvent
from relay.app.dashboard.page import embedded
from relay.app.dashboard.sessions import kind_of_end, standing_steps
from relay.core.errors import Exit
from relay.core.ledger.frozen import GONE
from relay.core.ledger.sessionreport import Samples
from relay.core.ledger.state import Incident, Link
from relay.core.session import ends
from relay.people.plan import Range
from relay.people.status import AccountRow
from tests.app.shown import curves, document
from tests.people.views import NOW, holder, state, trained, view

SESSIONS, STEPS = 500, 100_000


def link(epoch: int, **more: Any) -> Link:
    plain: dict[str, Any] = {"epoch": epoch, "account": "ana", "from_step": 0, "to_step": 10, "started": NOW}
    return Link(**{**plain, "seconds": 60.0, "end": "budget used", **more})


def long_run(steps: int = STEPS, names: Sequence[str] = tuple(f"metric_{n}_loss" for n in range(7))) -> Seen:
    """A commit each step, up to 500 sessions, 520 accounts, eight series."""
    sessions = min(SESSIONS, steps)
    random, each = Random(3), steps // sessions
    links = [
        link(
            n + 1,
            account=f"account_{n % 520}",
            from_step=n * each,
            to_step=(n + 1) * each,
            started=NOW + 4000.0 * n,
            seconds=3600.0,
            commits=each,
            gpu="H100 80GB HBM3",
            certified="not-exact" if n else "unknown",
            why="another device: " + "x" * 80,
        )
        for n in range(sessions)
    ]
    events = [
        CommitEvent(
            step,
            step,
            1 + (step - 1) // each,
            NOW + 20.0 * step,
            18.0 * (step % each),
            "a" * 16,
            {name: random.random() for name in names},
            random.random(),
        )
        for step in range(1, steps + 1)
    ]
    rows = tuple(AccountRow(f"account_{n}", f"Person {n}'s machine", "ready", steps=200) for n in range(520))
    run = trained().model_copy(update={"links": tuple(links[-100:]), "links_total": sessions})
    return Seen(view(run, rows), links, events=events, finish=Range(NOW + 1, NOW + 2, float("inf")))


def test_a_hundred_thousand_steps_and_500_sessions_are_quick_and_small() -> None:
    seen = long_run()
    began = time.process_time()
    found = embedded(document(seen))
    took = time.process_time() - began
    assert took < 2.0, took
    assert len(found) < 1_000_000
    shown = json.loads(found)
    assert len(shown["sessions"]) == SESSIONS and len(shown["accounts"]) == 520
    assert SESSIONS < len(shown["curves"]["line"]["step"]) <= MOST_POINTS
    assert len(shown["curves"]["series"]) == 8


def test_more_sessions_than_can_be_shown_are_told() -> None:
    links = [link(n, from_step=n, to_step=n + 1) for n in range(700)]
    run = trained().model_copy(update={"links": tuple(links[-50:]), "links_total": 700})
    found = document(Seen(view(run), links))
    assert len(found["sessions"]) == 500 and found["sessions_total"] == 700
    assert found["sessions"][0]["hours"] == pytest.approx(200 / 60, abs=1e-3), "hours count from the run's beginning"


@given(st.lists(st.none() | st.integers(-1000, 1000).map(float), min_size=1, max_size=300), st.integers(8, 60))
def test_thinning_keeps_the_ends_and_the_extremes(values: list[float | None], limit: int) -> None:
    kept = thinned([values], len(values), limit)
    assert len(kept) <= max(limit, 4) and kept == sorted(set(kept)) and {0, len(values) - 1} <= set(kept)
    known = [value for value in values if value is not None]
    if known:
        shown = [values[place] for place in kept if values[place] is not None]
        assert (min(known), max(known)) == (min(shown), max(shown))  # type: ignore[type-var]


def test_a_run_that_has_not_begun_says_unknown_and_never_zero_in_its_place() -> None:
    found = document(Seen(view(None, missing="the store holds no run of that name")))
    head = found["header"]
    assert head["finish"] is head["training_left_s"] is head["safe"] is head["validation"] is head["next"] is None
    assert head["lease"] == {"state": "free"} and found["sessions"] == found["handoffs"] == []
    assert len(found["notices"]) == 1 and found["notices"][0].endswith(": the store holds no run of that name")
    kept = found["storage"]
    assert kept["checkpoint_bytes"] is kept["upload_s"] is kept["oldest_step"] is None


def test_a_share_is_of_steps_that_stand() -> None:
    links = [
        link(1, account="ana", from_step=0, to_step=500),
        link(2, account="ben", from_step=300, to_step=600),
        link(3, account="ana", from_step=600, to_step=700),
    ]
    assert standing_steps(links) == {1: 300, 2: 300, 3: 100}
    rows = (AccountRow("ana", "Ana", "ready", steps=600), AccountRow("ben", "Ben", "ready", steps=300))
    found = document(Seen(view(trained(), rows), links))
    assert [(row["stands"], row["share"]) for row in found["accounts"]] == [(400, 0.5714), (300, 0.4286)]
    assert found["header"]["redone_steps"] == 200


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=12))
def test_standing_steps_add_up_to_where_the_run_stands(moves: list[tuple[int, int]]) -> None:
    links, step = [], 0
    for epoch, (back, on) in enumerate(moves, 1):
        begins = max(0, step - back)
        step = begins + on
        links.append(link(epoch, from_step=begins, to_step=step))
    assert sum(standing_steps(links).values()) == step


def test_hours_go_on_through_everybody_s_sessions() -> None:
    events = [
        CommitEvent(1, 10, 1, NOW, 1800.0, "", {"loss": 2.0}),
        CommitEvent(2, 20, 2, NOW + 9e4, 900.0, "", {"loss": 1.0}),
    ]
    found = curves(events, [link(1, seconds=3600.0), link(2, seconds=1800.0)])
    assert found["line"]["hours"] == [0.5, 1.25] and found["line"]["values"] == [[2.0, 1.0]]
    assert found["line"]["epoch"] == [1, 2]


def test_a_number_that_only_some_commits_told_has_gaps_and_operational_ones_are_left_out() -> None:
    told = {"goodput": 0.9, "upload_s": 3.0, "stall_ms": 1.0, "valid/exact_accuracy": 0.5}
    events = [CommitEvent(1, 10, 1, NOW, 0.0, "", told | {"loss": 2.0}, 0.5), CommitEvent(2, 20, 1, NOW, 0.0, "", told)]
    found = curves(events, [link(1)])
    assert [one["name"] for one in found["series"]] == ["loss", "validation"]
    assert found["line"]["values"] == [[2.0, None], [0.5, None]]


def test_numbers_that_no_axis_can_hold_are_gaps() -> None:
    """Any writer of the store may write them: `plot` failed on the span of such an axis."""
    events = [CommitEvent(n, 10 * n, 1, NOW, 0.0, "", {"loss": v}) for n, v in enumerate((1e308, 2.0, -1e308, 1e38), 1)]
    found = curves(events, [link(1)])
    assert found["line"]["values"] == [[None, 2.0, None, 1e38]]


def test_trained_again_is_told_apart() -> None:
    found = curves([CommitEvent(1, 10, 1, NOW, 0.0, "", {"loss": 2.0}), RewindEvent(2, 0)], [link(1)])
    assert found["line"]["step"] == [] and found["redone"]["step"] == [10] and found["commits"] == 0


KINDS_OF_ENDS = {
    "target": "reached",
    "budget": "planned",
    "until": "planned",
    "process lost": "planned",
    "stop": "planned",
    "notice": "planned",
    "sigterm": "stopped",
    "sigint": "stopped",
    "fenced": "fenced",
    "blocked": "failed",
}


def test_every_end_that_sessions_write_has_a_kind() -> None:
    written = {reason for _, reason in ends.ENDS.values()} | set(ends.FAILURES.values())
    kinds = {end: kind_of_end(link(1, end=end)) for end in written}
    ended = {why: kinds[reason] for why, (_, reason) in ends.ENDS.items()}
    assert ended == KINDS_OF_ENDS
    failed = {code: kinds[reason] for code, reason in ends.FAILURES.items()}
    assert (failed.pop(Exit.FENCED), failed.pop(Exit.LEASE_HELD)) == ("fenced", "planned")
    assert set(failed.values()) == {"failed"}
    assert kind_of_end(link(1, end="open")) == "open"
    assert len(GONE) == 3 and all(kind_of_end(link(1, end=end)) == "killed" for end in GONE)


def test_every_incident_says_what_to_do() -> None:
    causes = [*ADVICE, "something new"]
    noted = tuple(Incident(at=NOW, epoch=1, step=1, account=None, cause=c, text="x\u202e\x1b[2J") for c in causes)
    run = trained().model_copy(update={"incidents": noted[-20:]})
    rows = incident_rows(view(run), [link(1, end="no sign of life", ended=NOW + 5)])
    assert rows[0]["cause"] == "killed" and "ana" in rows[0]["text"], "newest first"
    assert all(row["todo"] for row in rows) and any("verify" in row["todo"] for row in rows)
    assert not re.search("[\x00-\x1f\u202e]", json.dumps(rows, ensure_ascii=False))


def test_the_lease_is_held_run_out_or_free() -> None:
    held = document(Seen(view(trained(holder=holder()))))["header"]["lease"]
    assert held["state"] == "held" and held["expires"] > NOW - 1e6
    out = document(Seen(view(trained(holder=holder()), now=NOW + 1e6)))["header"]["lease"]
    assert out["state"] == "run out" and document(Seen(view(state())))["header"]["lease"] == {"state": "free"}


def test_what_was_told_between_commits_is_drawn_and_what_was_trained_again_is_hollow() -> None:
    def made(slot: int, epoch: int, step: int, told: tuple[int, ...]) -> CommitEvent:
        samples = Samples(
            steps=told, seconds=tuple(60 * n for n in range(len(told))), columns={"loss": (1.0,) * len(told)}
        )
        return CommitEvent(slot, step, epoch, NOW + step, 240.0, "", {"loss": 0.5}, 0.25, samples)

    events = [made(1, 1, 40, (10, 20, 40)), made(2, 1, 80, (50, 60, 80)), RewindEvent(3, 40), made(4, 2, 80, (55, 80))]
    found = curves(events, [link(1, seconds=3600.0), link(2, started=NOW)])
    assert found["line"]["step"] == [10, 20, 40, 55, 80] and found["redone"]["step"] == [50, 60, 80]
    assert found["line"]["epoch"] == [1, 1, 1, 2, 2] and found["commits"] == 2
    assert found["line"]["values"] == [[1.0, 1.0, 0.5, 1.0, 0.5], [None, None, 0.25, None, 0.25]]
    assert [at - round(NOW) for at in found["line"]["time"]] == [40 - 240, 40 - 180, 40 - 120, 80 - 240, 80 - 180]
    assert found["line"]["hours"][3:] == [1.0, 1.017]


def test_a_hundred_thousand_steps_told_every_twenty_are_quick() -> None:
    random, names, events = Random(4), [f"metric_{n}_loss" for n in range(7)], []
    columns = {name: tuple(random.random() for _ in range(25)) for name in names}
    for slot in range(1, 4001):
        told = tuple(range(slot * 25 - 24, slot * 25 + 1))
        samples = Samples.model_construct(steps=told, seconds=told, columns=columns)
        events.append(CommitEvent(slot, slot * 25, 1, NOW + slot, 1e6, "", dict.fromkeys(names, 0.5), 0.5, samples))
    began = time.process_time()
    found = curves(events, [link(1)])
    assert time.process_time() - began < 4.0, "far from quick: some step of it grows with the square"
    assert 1000 < len(found["line"]["step"]) <= MOST_POINTS and found["line"]["step"][-1] == STEPS
