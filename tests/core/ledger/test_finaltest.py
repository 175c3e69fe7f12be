"""The results of a late test in a state: what is written comes back, and nothing that a stranger wrote is believed."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

import pytest

from relay.core.ledger.changes import Commit, Noted, Rewind
from relay.core.ledger.finaltest import asked, asked_in_vain, notes, of_head, untested
from relay.core.ledger.frozen import NOTE, TESTED, TEXT, escaped
from relay.core.ledger.state import RunState
from relay.core.workload import Reading, Splits
from tests.core.making import checkpoint
from tests.core.rulings import by, committed, do, leased, new

STEP = 40
HASH = checkpoint(STEP, 1).state_hash


def at_target(metrics: Mapping[str, float] | None = None) -> RunState:
    """A run whose target is committed with these metrics."""
    change = Commit(checkpoint=checkpoint(STEP, 1), metrics=dict(metrics or {}))
    return do(leased(new(), target_steps=STEP), "commit", change, by(1))


def noted(state: RunState, *every: Noted) -> RunState:
    for one in every:
        state = do(state, "incident", one, by(state.epoch))
    return state


def published(state: RunState, reading: str, results: Mapping[str, float]) -> RunState:
    assert state.head
    return noted(state, *notes(state.head, reading, {f"{reading}/{name}": value for name, value in results.items()}))


def text(words: str = "loss=0.5", reading: str = "test", part: str = "1 of 1", state_hash: str = HASH[:16]) -> str:
    return f"{reading} of state {state_hash}, part {part}: {words}"


def test_readings_are_named_as_their_metrics() -> None:
    splits = Splits("validation", "test")
    assert splits.tests([Reading(raw=True), Reading(recursions=16)]) == ["test", "test_raw", "test_r16"]
    assert Reading(raw=True).named("test", "loss") == "test_raw/loss"


@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_results_come_back_with_every_digit(count: int) -> None:
    dice = random.Random(count)
    results = {f"metric@{n}": dice.choice((1, -1e-9, 1e22, 3e-300)) * dice.random() for n in range(count)}
    state = at_target({"loss": 0.5})
    found = published(state, "test_r16", results)
    assert of_head(found) == {"loss": 0.5, **{f"test_r16/{name}": value for name, value in results.items()}}
    assert untested(found, ["test", "test_r16"], STEP) == ["test"]
    assert all(escaped(one.text) <= TEXT for one in found.incidents) and len(found.incidents) <= 1 + count // 8


def test_the_longest_names_fit() -> None:
    results = {f"{n:02}".rjust(64, "x"): 1.2345678901234567e-300 for n in range(9)}
    assert len(of_head(published(at_target(), "test_raw_r1000", results))) == 9


def test_a_part_that_is_missing_makes_no_result_and_a_whole_one_after_it_does() -> None:
    head, results = at_target().head, {f"test/metric_{n}": n / 7 for n in range(40)}
    assert head
    parts = notes(head, "test", results)
    assert len(parts) > 2
    for left_out in parts:
        half = noted(at_target(), *(one for one in parts if one is not left_out))
        assert not of_head(half) and untested(half, ["test"], STEP) == ["test"]
        assert of_head(noted(half, *parts)) == results


def test_a_result_is_replaced_by_no_later_one() -> None:
    """Neither the commit's nor a noted one, whoever writes it: an incident needs no lease."""
    state = published(at_target({"test/loss": 0.5}), "test_raw", {"loss": 0.25})
    later = leased(state, session=2, target_steps=STEP)
    for reading in ("test", "test_raw"):
        for results in ({"loss": 9.0}, {f"metric_{n}": 9.0 + n / 7 for n in range(40)}):
            later = published(later, reading, {**results, "loss": 9.0})
    found = of_head(later)
    assert (found["test/loss"], found["test_raw/loss"]) == (0.5, 0.25)
    assert not [name for name in found if name.startswith("test_raw/metric")]


def test_parts_of_two_sessions_make_no_result() -> None:
    """On another device the digits differ, and so the cut between two parts."""
    state, results = at_target(), {f"test/metric_{n}": n / 7 for n in range(40)}
    assert state.head
    one, two = notes(state.head, "test", results)[:2], notes(state.head, "test", results)[2:]
    state = leased(noted(state, *one), session=2, target_steps=STEP)
    assert one and two and not of_head(noted(state, *two))
    assert of_head(noted(state, *two, *one)) == results


def test_a_commit_that_asks_for_a_reading_lacks_it_until_it_has_a_result() -> None:
    state = at_target({asked("test"): 30.0, asked("test_r4"): 30.0, "test_raw/loss": 0.5})
    readings = ["test", "test_raw", "test_r4"]
    assert asked_in_vain(state, STEP) == ["test", "test_r4"] == untested(state, readings, STEP)
    assert of_head(state) == {"test_raw/loss": 0.5}
    late = published(state, "test_r4", {"loss": 0.25})
    assert asked_in_vain(late, STEP) == ["test"] and of_head(late) == {"test_raw/loss": 0.5, "test_r4/loss": 0.25}
    assert not asked_in_vain(state, STEP + 20), "it is not due before the new target"


def test_a_state_without_results_owes_the_test_only_at_its_target() -> None:
    state = committed(leased(new(), target_steps=STEP), 10)
    assert untested(state, ["test"], STEP) == [] and untested(new(), ["test"], STEP) == []
    assert untested(at_target({"validation/loss": 0.5}), ["test"], STEP) == ["test"]
    assert untested(at_target(), ["test"], STEP - 1) == [], "beyond it, where no test was asked for"


def test_results_of_another_state_do_not_count() -> None:
    """After a rewind the run may reach the step with the same state or with another one."""
    state = published(committed(leased(new(), target_steps=STEP), 10, STEP), "test", {"loss": 0.5})
    assert of_head(state) == {"test/loss": 0.5}
    back = leased(state, session=2, target_steps=STEP)
    back = do(back, "rewind", Rewind(damaged=((STEP, 1),), to=(10, 1), evidence="e"), by(2, 2))
    assert not of_head(back)
    for same in (True, False):
        again = checkpoint(STEP, 2)
        again = again.model_copy(update={"state_hash": HASH if same else "f" * 64})
        assert (of_head(do(back, "commit", Commit(checkpoint=again), by(2, 2))) != {}) == same


@pytest.mark.parametrize(
    ("incident", "counts"),
    [
        (Noted(cause=TESTED, text=text(), step=STEP), True),
        (Noted(cause=NOTE, text=text(), step=STEP), False),
        (Noted(cause=TESTED, text=text(), step=STEP - 1), False),
        (Noted(cause=TESTED, text=text(state_hash="0" * 16), step=STEP), False),
        (Noted(cause=TESTED, text=text(part="1 of 0"), step=STEP), False),
        (Noted(cause=TESTED, text=text(part="0 of 1"), step=STEP), False),
        (Noted(cause=TESTED, text=text(part="2 of 1"), step=STEP), False),
        (Noted(cause=TESTED, text=text(part="1 of 99"), step=STEP), False),
        (Noted(cause=TESTED, text="the test went well", step=STEP), False),
    ],
)
def test_other_incidents_are_no_results(incident: Noted, counts: bool) -> None:
    assert (of_head(noted(at_target(), incident)) == {"test/loss": 0.5}) == counts


@pytest.mark.parametrize("word", ["loss=nan", "loss=inf", "loss=1e999", "loss=", "=1", "loss", "loss=1_0", "loss=٣"])
def test_what_is_not_a_number_is_left_out(word: str) -> None:
    found = of_head(noted(at_target(), Noted(cause=TESTED, text=text(f"{word} n=30.0"), step=STEP)))
    assert found in ({"test/n": 30.0}, {})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("letter", ["=", " ", "a", "1", "/", "e", ".", ":", "a=", "=1", " ==", " =====", " a=b=c=1"])
@pytest.mark.parametrize(
    "around", ["{}", "test{} of state", text("{}"), text("{} x"), text("loss=1{} x"), text("{}=1 x")]
)
def test_no_text_of_a_stranger_takes_long_to_read(letter: str, around: str) -> None:
    """Every reader reads it: status, report, next, and each session."""
    state = noted(at_target(), Noted(cause=TESTED, text=around.format((letter * 430)[:430]), step=STEP))
    began = time.process_time()
    of_head(state)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "name", ["@everyone", "<b>test</b>", "[red]test", "https://a.example", "test of", "t*e*st", "a`b"]
)
def test_messages_name_only_what_a_reading_can_be_called(name: str) -> None:
    state = at_target({f"{name}/asked": 30.0, "test_r4/asked": 30.0})
    assert asked_in_vain(state, STEP) == ["test_r4"]
    assert f"{name}/loss" not in of_head(published(state, name, {"loss": 0.5}))
