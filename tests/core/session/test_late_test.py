"""However a session ends near the target, the run gets its test: the results of an unbroken run, published once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from relay.core.errors import Exit, StorageUnreachable
from relay.core.events import LateResult
from relay.core.lease.signals import StopReason
from relay.core.ledger.finaltest import asked_in_vain, of_head
from relay.core.ledger.frozen import ASKED, TARGET_REACHED, TERMINATED, TESTED
from relay.core.ledger.state import RunState
from relay.core.session.ending import NotSent
from relay.core.session.training import NoTimeForTest
from relay.core.workload import Reading, Share
from tests.core.fake_runtime import World
from tests.core.lab import FakeLocks, Lab, Session, down, said
from tests.core.toy import Part, ToyWorkload, hash_of, state_at

TARGET = 40
ALSO = (Reading(raw=True), Reading(recursions=16))
READINGS = ["test", "test_raw", "test_r16"]
PLAN: dict[str, Any] = {"target_steps": TARGET, "every_steps": 10, "test_rows": 30, "test_also": ALSO}


@dataclass
class Judged(ToyWorkload):
    """Its results follow from the state, the reading and the rows; a reading takes `test_s` seconds."""

    test_s: float = 3.0
    tested: list[str] = field(default_factory=list)
    """The readings that were evaluated to their end."""
    results: Callable[[dict[str, float]], dict[str, float]] = lambda found: found

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        for part in range(1, 11):
            self.sleep(self.test_s / 10)
            progress(Part(part, 10))
        self.tested.append(self.reading.on(split))
        which = self.values[0] + 7 * (self.reading.recursions or 0) + 3 * self.reading.raw
        return self.results({"exact_accuracy": which % 1_000_003 / 1_000_003, "loss": 1e-7 * (which % 97), "n": 30.0})


def session(lab: Lab, name: str = "ana", test_s: float = 3.0, **more: Any) -> Session:
    return lab.session(name, workload=Judged(test_s=test_s, **more.pop("toy", {})), **{**PLAN, **more})


def results(state: RunState) -> dict[str, float]:
    """What the run's test gave, wherever it is stored."""
    found = of_head(state)
    return {name: value for name, value in found.items() if name.rpartition("/")[0] in READINGS}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The results of a session that nothing ends."""
    lab = Lab(tmp_path_factory.mktemp("unbroken"), World())
    assert lab.run(session(lab)).exit_code == Exit.OK and not [i for i in lab.state().incidents if i.cause == TESTED]
    found = results(lab.state())
    assert lab.state().metrics.items() >= found.items()
    assert not [name for name in lab.state().metrics if name.endswith(ASKED)], "as before"
    lab.world.close()
    assert len(found) == 7 and len(set(found.values())) == 7, "each reading has its own"
    return found


def finish(lab: Lab, unbroken: dict[str, float], **more: Any) -> list[Session]:
    """Sessions until one reaches the target; then nothing is missing, and a further session has nothing to do."""
    made = list[Session]()
    while not made or made[-1].outcome.exit_code != Exit.OK:
        made.append(session(lab, "ben", **more))
        lab.run(made[-1])
        assert len(made) < 4, said(made[-1].outcome)
    state = lab.state()
    assert results(state) == unbroken and not asked_in_vain(state, TARGET) and not made[-1].outcome.untested
    assert lab.held() == hash_of(TARGET, state_at(TARGET))
    again = session(lab, "cyd", **more)
    assert lab.run(again).idle and not evaluated(again) and lab.state() == state
    return made


def many(found: dict[str, float]) -> dict[str, float]:
    """A reading of 14 metrics: three of them are more than a commit holds."""
    return {**{f"of_hop_{n}": found["loss"] + n for n in range(12)}, **found}


def evaluated(*sessions: Session) -> list[str]:
    """The readings that these sessions evaluated, in order."""
    return [reading for one in sessions if isinstance(one.workload, Judged) for reading in one.workload.tested]


def old(lab: Lab) -> None:
    """A run at its target without the test, as earlier versions left it: its commit says nothing of a test."""
    lab.run(session(lab, test_rows=0, test_also=()))
    assert lab.state().step == TARGET and not results(lab.state()) and not asked_in_vain(lab.state(), TARGET)


# --- Every end, at every moment from before the last step to after the last reading ----------------------------------

MOMENTS = [round(4.0 + 0.37 * n, 2) for n in range(30)]
ENDS: dict[StopReason, Exit] = {"sigterm": Exit.SIGTERM, "sigint": Exit.SIGINT, "stop": Exit.HANDOFF}


@pytest.mark.slow
@pytest.mark.parametrize("reason", ENDS)
@pytest.mark.parametrize("at", MOMENTS)
def test_a_signal(lab: Lab, unbroken: dict[str, float], reason: StopReason, at: float) -> None:
    first = session(lab)
    lab.world.at(lab.world.now + at, lambda: first.ctx.signal.ask(reason))
    code = lab.run(first).exit_code
    state = lab.state()
    assert code in (ENDS[reason], Exit.OK) and (code == Exit.OK) == (results(state) == unbroken), said(first.outcome)
    if state.step == TARGET:
        assert sorted(asked_in_vain(state, TARGET)) == sorted(first.outcome.untested), "the commit names what it lacks"
    later = finish(lab, unbroken) if code != Exit.OK else []
    assert sorted(evaluated(first, *later)) == sorted(READINGS), "no reading is evaluated twice"


@pytest.mark.slow
@pytest.mark.parametrize("at", MOMENTS)
def test_a_kill(lab: Lab, unbroken: dict[str, float], at: float) -> None:
    first = session(lab)
    lab.world.at(lab.world.now + at, first.process.kill)
    first.start()
    lab.world.run()
    finish(lab, unbroken, wait_s=600.0)


@pytest.mark.slow
@pytest.mark.parametrize("at", MOMENTS)
def test_a_lost_lease(lab: Lab, unbroken: dict[str, float], at: float) -> None:
    """The machine sleeps, another session takes over, and then the machine wakes up."""
    first, second = session(lab), session(lab, "ben")
    lab.world.at(lab.world.now + at, lambda: first.process.suspend(3600))
    lab.world.at(lab.world.now + 1000, second.start)
    first.start()
    lab.world.run(to_the_end=True)
    assert second.outcome.exit_code == Exit.OK and results(lab.state()) == unbroken
    assert first.outcome.exit_code in (Exit.FENCED, Exit.OK)
    finish(lab, unbroken)


@pytest.mark.slow
@pytest.mark.parametrize("at", MOMENTS)
def test_a_cloud_that_takes_the_machine_back(lab: Lab, unbroken: dict[str, float], at: float) -> None:
    first = session(lab)

    def notice() -> None:
        first.ctx.signal.warn("spot notice", first.process.monotonic() + 25.0)

    lab.world.at(lab.world.now + at, notice)
    assert lab.run(first).exit_code in (Exit.HANDOFF, Exit.OK)
    finish(lab, unbroken)


@pytest.mark.parametrize("budget_s", range(8, 40, 2))
def test_a_budget(lab: Lab, unbroken: dict[str, float], budget_s: int) -> None:
    first = session(lab, budget_s=budget_s)
    assert lab.run(first).exit_code in (Exit.HANDOFF, Exit.OK)
    later = finish(lab, unbroken) if first.outcome.exit_code != Exit.OK else []
    assert sorted(evaluated(first, *later)) == sorted(READINGS)


# --- A session that only tests ---------------------------------------------------------------------------------------


def test_an_old_run_at_its_target_is_repaired(lab: Lab, unbroken: dict[str, float]) -> None:
    old(lab)
    before, kinds = lab.state(), lab.kinds()
    (one,) = finish(lab, unbroken)
    after = lab.state()
    assert not one.workload.trained and evaluated(one) == READINGS
    assert [e for e in one.heard.events if isinstance(e, LateResult)] == [LateResult(TARGET, name) for name in READINGS]
    assert (after.head, after.metrics, after.retained) == (before.head, before.metrics, before.retained)
    assert lab.kinds()[len(kinds) :] == ["lease", *["incident"] * 3, "release"], "nothing that older clients refuse"
    assert after.link and (after.link.end, after.link.from_step) == (TARGET_REACHED, TARGET)


@pytest.mark.slow
@pytest.mark.parametrize("reason", ENDS)
@pytest.mark.parametrize("at", [round(0.3 + 0.4 * n, 1) for n in range(26)])
def test_it_ends_by_a_signal(lab: Lab, unbroken: dict[str, float], reason: StopReason, at: float) -> None:
    """A stop lets the reading end that has begun, and the others."""
    old(lab)
    first = session(lab)
    lab.world.at(lab.world.now + at, lambda: first.ctx.signal.ask(reason))
    code = lab.run(first).exit_code
    assert code in (ENDS[reason], Exit.OK) and (code == Exit.OK) == (results(lab.state()) == unbroken)
    if code != Exit.OK:
        assert first.outcome.untested == [name for name in READINGS if f"{name}/loss" not in results(lab.state())]
        assert first.outcome.untested[0] in said(first.outcome)
        assert evaluated(*finish(lab, unbroken)) == list(first.outcome.untested)


def calls_of_a_test(tmp: Path) -> int:
    """Calls of the store by a session that only tests."""
    lab = Lab(tmp, World())
    old(lab)
    one = session(lab)
    lab.run(one)
    lab.world.close()
    return len(one.store.calls)


@pytest.mark.slow
def test_it_is_killed_before_or_after_any_call_of_the_store(tmp_path: Path, unbroken: dict[str, float]) -> None:
    """So also between the lease and the test, and between two results."""
    lacking = set[int]()
    for number in range(2 * calls_of_a_test(tmp_path / "count")):
        lab = Lab(tmp_path / str(number), World())
        old(lab)
        first, seen = session(lab), 0

        def die(verb: str, name: str, first: Session = first, number: int = number) -> None:
            nonlocal seen
            seen += 1
            if seen > number:
                first.process.kill()
                first.process.check()

        first.store.fail = die
        first.start()
        lab.world.run()
        lacking.add(len(results(lab.state())))
        finish(lab, unbroken, wait_s=600.0)
        lab.world.close()
    assert lacking == {0, 3, 5, 7}, "it died with none, one, two and three results"


def test_it_loses_its_lease(lab: Lab, unbroken: dict[str, float]) -> None:
    old(lab)
    first, second = session(lab), session(lab, "ben")
    lab.world.at(lab.world.now + 4, lambda: first.process.suspend(3600))
    lab.world.at(lab.world.now + 1000, second.start)
    first.start()
    lab.world.run(to_the_end=True)
    assert (first.outcome.exit_code, second.outcome.exit_code) == (Exit.FENCED, Exit.OK)
    assert [i.epoch for i in lab.state().incidents if i.cause == TESTED] == [2, 3, 3], "what it had published counts"
    finish(lab, unbroken)


def test_a_budget_too_short_for_a_reading_ends_with_75_and_keeps_the_others(
    lab: Lab, unbroken: dict[str, float]
) -> None:
    old(lab)
    first = session(lab, budget_s=10.0)
    assert lab.run(first).exit_code == Exit.HANDOFF and lab.state().step == TARGET
    assert first.outcome.untested and evaluated(first), "one result at least is kept"
    assert evaluated(first, *finish(lab, unbroken)) == READINGS


@pytest.mark.parametrize("budget_s", [5.0, 9.0])
def test_a_session_without_time_for_any_reading_is_refused_and_says_why(
    lab: Lab, unbroken: dict[str, float], budget_s: float
) -> None:
    """With 75 a launcher that starts it again would do so for ever."""
    old(lab)
    one = session(lab, budget_s=budget_s, test_s=20.0)
    assert lab.run(one).exit_code == Exit.BAD_CONFIG and not evaluated(one)
    assert isinstance(one.outcome.failure, NoTimeForTest) and one.outcome.untested == READINGS
    assert one.outcome.failure.needed_s in (0.0, pytest.approx(20.0, 0.5)) and "--budget-minutes" in said(one.outcome)
    assert lab.state().holder is None, "the lease is released"
    stopped = session(lab, budget_s=budget_s, test_s=20.0)
    lab.world.at(lab.world.now + 1, lambda: stopped.ctx.signal.ask("stop"))
    assert lab.run(stopped).exit_code == Exit.HANDOFF, "a person asked for it"
    finish(lab, unbroken)


def test_it_keeps_its_lease_while_a_reading_advances(lab: Lab, unbroken: dict[str, float]) -> None:
    """A test of hours; a session that waits would take over, and begin the same test again."""
    old(lab)
    both = [session(lab, name, test_s=9000.0, wait_s=40_000.0) for name in ("ana", "ben")]
    for one in both:
        one.start()
    lab.world.run(to_the_end=True)
    assert evaluated(*both) == READINGS and [one.outcome.exit_code for one in both] == [Exit.OK, Exit.OK]
    finish(lab, unbroken)


def test_a_reading_that_was_given_up_is_not_tried_again_after_the_extra_step(
    lab: Lab, unbroken: dict[str, float]
) -> None:
    """Its state is another one. A session that begins directly before the target makes that step in any case."""
    lab.run(session(lab, until_step=TARGET - 1))
    first, slow = session(lab, budget_s=60.0), [10.0]
    assert isinstance(first.workload, Judged)

    def sleep(seconds: float, real: Callable[[float], None] = first.workload.sleep) -> None:
        real(slow.pop() if slow and seconds == 0.3 else seconds)

    first.workload.sleep = sleep
    assert lab.run(first).exit_code == Exit.HANDOFF and first.workload.trained == [TARGET, TARGET + 1]
    assert lab.state().step == TARGET and not evaluated(first)
    finish(lab, unbroken)


def test_a_result_that_comes_with_a_signal_is_left_to_the_next(lab: Lab, unbroken: dict[str, float]) -> None:
    """Its grace is for the release of the lease."""
    old(lab)
    first = session(lab)

    def ask(found: dict[str, float]) -> dict[str, float]:
        first.ctx.signal.ask("sigterm")
        return found

    assert isinstance(first.workload, Judged)
    first.workload.results = ask
    assert lab.run(first).exit_code == Exit.SIGTERM and evaluated(first) == ["test"] and not results(lab.state())
    finish(lab, unbroken)


def test_a_store_that_is_away_ends_it(lab: Lab, unbroken: dict[str, float]) -> None:
    old(lab)
    first = session(lab)
    lab.world.at(lab.world.now + 2, lambda: setattr(first.store, "fail", down))
    assert isinstance(lab.run(first).failure, StorageUnreachable) and first.outcome.exit_code == 69
    finish(lab, unbroken, wait_s=600.0)


def test_two_sessions_at_once_test_once(lab: Lab, unbroken: dict[str, float]) -> None:
    old(lab)
    both = [session(lab, name, wait_s=600.0) for name in ("ana", "ben")]
    for one in both:
        one.start()
    lab.world.run()
    assert evaluated(*both) == READINGS and results(lab.state()) == unbroken
    assert [one.outcome.exit_code for one in both] == [Exit.OK, Exit.OK]


def test_a_session_without_the_test_or_with_an_earlier_end_does_not_make_it(lab: Lab) -> None:
    old(lab)
    assert lab.run(session(lab, test_rows=0, test_also=())).idle
    lab.begin("other")
    lab.run(session(lab, "ben", run="other", until_step=20))
    one = session(lab, "ben", run="other", until_step=20)
    assert lab.run(one).idle and not evaluated(one)


# --- Other ways to a target without its test -------------------------------------------------------------------------


def test_a_test_that_lasts_longer_than_a_commit_waits_is_published_after_it(
    lab: Lab, unbroken: dict[str, float]
) -> None:
    one = session(lab, test_s=500.0)
    assert lab.run(one).exit_code == Exit.OK and results(lab.state()) == unbroken and evaluated(one) == READINGS
    assert "test/loss" in lab.state().metrics, "the commit carries what it waited for"
    assert [i.text.split()[0] for i in lab.state().incidents if i.cause == TESTED] == READINGS[1:]


def test_more_results_than_a_commit_holds_are_published_after_it(lab: Lab) -> None:
    """A commit has room for 32 metrics, and drops the first."""
    one = session(lab, toy={"results": many})
    lab.run(one)
    found = results(lab.state())
    assert len(found) == 3 * 14 + 1 and evaluated(one) == READINGS and one.outcome.exit_code == Exit.OK
    assert len(results(lab.state().model_copy(update={"incidents": ()}))) < len(found)
    assert lab.run(session(lab)).idle


@pytest.mark.slow
@pytest.mark.parametrize("at", [round(4.0 + 0.37 * n, 2) for n in range(26)])
def test_a_reading_without_room_in_the_commit_is_left_out_as_a_whole(lab: Lab, at: float) -> None:
    """A signal may come before it is published; the results in the commit would pass for all of them."""
    first = session(lab, toy={"results": many})
    lab.world.at(lab.world.now + at, lambda: first.ctx.signal.ask("sigterm"))
    lab.run(first)
    state = lab.state()
    if state.step == TARGET:
        parts = {reading: sum(name.startswith(f"{reading}/") for name in results(state)) for reading in READINGS}
        assert sorted(asked_in_vain(state, TARGET)) == sorted(name for name, count in parts.items() if not count)
    for name in ("ben", "cyd"):
        lab.run(session(lab, name, toy={"results": many}))
    assert len(results(lab.state())) == 3 * 14 + 1 and lab.run(session(lab)).idle


def test_more_readings_than_a_state_has_room_for_end_the_session_and_are_named(lab: Lab) -> None:
    """With 75 a launcher that starts it again would do so for ever."""
    also = tuple(Reading(recursions=n) for n in range(2, 30))
    for _ in range(3):
        one = session(lab, toy={"results": many}, test_also=also)
        assert lab.run(one).exit_code == Exit.OK and one.outcome.untested


def test_a_reading_that_is_named_twice_is_made_once(lab: Lab) -> None:
    old(lab)
    one = session(lab, test_also=(Reading(raw=True), Reading(raw=True)))
    lab.run(one)
    assert [i.text.split()[0] for i in lab.state().incidents] == ["test", "test_raw"] == evaluated(one)


def test_any_number_of_rows_may_be_asked_for(lab: Lab, unbroken: dict[str, float]) -> None:
    assert lab.run(session(lab, test_rows=10**400)).exit_code == Exit.OK and results(lab.state()) == unbroken


@pytest.mark.parametrize("nothing", [{}, {"loss": float("nan")}])
def test_a_test_without_any_number_is_made_once(lab: Lab, nothing: dict[str, float]) -> None:
    """As for a task without test rows."""
    one = session(lab, toy={"results": lambda found: nothing})
    assert lab.run(one).exit_code == Exit.OK and evaluated(one) == READINGS and not results(lab.state())
    assert lab.run(session(lab)).idle and not asked_in_vain(lab.state(), TARGET)


def test_an_upload_that_the_next_session_sends_is_tested_by_it(lab: Lab, unbroken: dict[str, float]) -> None:
    first = session(lab, machine="same")
    lab.world.at(lab.world.now + 5, lambda: setattr(first.store, "fail", down))
    lab.world.at(lab.world.now + 20, lambda: first.ctx.signal.ask("sigterm"))
    assert isinstance(lab.run(first).failure, NotSent) and first.outcome.unsent
    (one,) = finish(lab, unbroken, machine="same", wait_s=600.0)
    assert not one.workload.trained


def test_a_damaged_state_at_the_target_is_trained_again_and_tested(lab: Lab, unbroken: dict[str, float]) -> None:
    old(lab)
    lab.damage(f"step_{TARGET}.e1/state.json", lambda data: data + b" ")
    (one,) = finish(lab, unbroken)
    assert one.workload.trained[0] == TARGET - 9 and "test/loss" in lab.state().metrics


def test_a_state_that_is_not_the_one_in_the_ledger_is_no_end_before_the_next_is_loaded(lab: Lab) -> None:
    """It is at the target when the session learns that it is damaged."""
    old(lab)
    one = session(lab)
    one.workload.impure, real = 0, one.workload.load

    def load(folder: Path) -> None:
        real(folder)
        if one.workload.step == TARGET:
            one.workload.values = (0, 0, 0, 0)

    one.workload.load = load  # type: ignore[method-assign]
    assert lab.run(one).exit_code == Exit.OK and "test/loss" in lab.state().metrics and "rewind" in lab.kinds()


def test_a_target_that_was_raised_has_its_own_test(lab: Lab, unbroken: dict[str, float]) -> None:
    old(lab)
    finish(lab, unbroken)
    one = session(lab, target_steps=60)
    assert lab.run(one).exit_code == Exit.OK and evaluated(one) == READINGS
    found = results(lab.state())
    assert found.keys() == unbroken.keys() and found["test/loss"] != unbroken["test/loss"]


def test_a_crash_in_the_test_halts_the_run_at_the_second_time(lab: Lab) -> None:
    old(lab)

    def crash(found: dict[str, float]) -> dict[str, float]:
        raise RuntimeError("in the test")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            lab.run(session(lab, toy={"results": crash}))
    assert lab.state().halted and lab.run(session(lab)).exit_code == Exit.BAD_DATA


def test_a_killed_session_on_this_machine_costs_no_wait(lab: Lab, unbroken: dict[str, float]) -> None:
    old(lab)
    locks = FakeLocks()
    first = session(lab)
    first.ctx.locks = locks.of(first.process)
    lab.world.at(lab.world.now + 4, first.process.kill)
    first.start()
    lab.world.run()
    second = session(lab, "ben")
    second.ctx.locks = locks.of(second.process)
    assert lab.run(second).exit_code == Exit.OK and results(lab.state()) == unbroken


def test_the_end_and_its_message(lab: Lab) -> None:
    first = session(lab)
    lab.world.at(lab.world.now + 9, lambda: first.ctx.signal.ask("sigterm"))
    lab.run(first)
    link = lab.state().link
    assert link and (link.to_step, link.end) == (TARGET, TERMINATED) and first.outcome.untested
    assert all(reading in said(first.outcome) for reading in first.outcome.untested)
