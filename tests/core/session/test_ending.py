"""A snapshot becomes durable despite events during or after it, and no session waits longer than allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relay.core.checkpoint.commit import Writer
from relay.core.checkpoint.committer import Item
from relay.core.errors import Exit
from relay.core.lease.signals import StopReason
from relay.core.session import session
from relay.core.session.ending import Ending
from tests.core.lab import Lab, down, said
from tests.core.toy import Part, ToyWorkload


def test_a_crash_of_the_step_that_is_thrown_away_costs_nothing(lab: Lab) -> None:
    workload = ToyWorkload(crash={100: RuntimeError("beyond the schedule")})
    outcome = lab.run(lab.session(workload=workload, every_steps=1000))
    assert outcome.exit_code == Exit.OK
    state = lab.state()
    assert state.step == 100 and state.head is not None and state.head.next is None
    assert not state.failures


def test_a_snapshot_outlives_a_crash_of_the_next_step(lab: Lab) -> None:
    with pytest.raises(RuntimeError):
        lab.run(lab.session(workload=ToyWorkload(crash={50: RuntimeError("x")}), every_steps=50))
    assert lab.state().step == 50
    assert [f.cause for f in lab.state().failures] == ["crash"], "recorded after the commit, which clears failures"


def test_an_upload_under_way_outlives_a_crash(lab: Lab) -> None:
    with pytest.raises(RuntimeError):
        lab.run(lab.session(workload=ToyWorkload(crash={53: RuntimeError("x")}), every_steps=50, delay_s=0.2))
    assert lab.state().step == 50


def test_an_upload_under_way_and_the_last_one_both_land_where_there_is_time(lab: Lab) -> None:
    lab.run(lab.session(target_steps=53, every_steps=50, delay_s=0.2))
    assert [c.step for c in lab.state().retained] == [50, 53]


@pytest.mark.parametrize("signal", [None, "sigterm"])
def test_what_follows_the_last_commit_is_waited_for_unless_a_signal_hurries_the_session(
    lab: Lab, signal: StopReason | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lab.session(target_steps=40, every_steps=1000)
    cleaned: list[int] = []

    def slowly(writer: Writer, item: Item) -> None:
        session.process.sleep(5.0)
        cleaned.append(item.step)

    monkeypatch.setattr(Writer, "committed", slowly)
    if signal is not None:
        lab.world.at(lab.world.now + 2, lambda: session.ctx.signal.ask(signal))
    lab.run(session)
    assert lab.state().step > 0 and bool(cleaned) == (signal is None)


@pytest.mark.parametrize("reason", ["sigterm", "sigint"])
def test_a_signal_while_the_final_commit_waits_leaves_the_grace(lab: Lab, reason: str) -> None:
    session = lab.session(target_steps=40, every_steps=1000).start()
    began = lab.world.now
    lab.world.at(began + 3, lambda: setattr(session.store, "fail", down))
    lab.world.at(began + 10, lambda: session.ctx.signal.ask(reason))
    lab.world.run()
    assert lab.world.now - began < 10 + 30
    assert session.outcome.exit_code in (Exit.SIGTERM, Exit.SIGINT) and session.outcome.unsent is not None


@pytest.mark.parametrize(("where", "what"), [(Ending, "_give_up"), (session, "release"), (session, "leave_report")])
def test_what_a_later_session_took_over_is_not_called_kept(
    lab: Lab, where: object, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds 859, 6797 and 14838 of the simulation: a process sleeps while it ends, and another on its disk goes on."""
    first = lab.session(machine="shared", target_steps=40, every_steps=1000)
    second = lab.session("bob", machine="shared", target_steps=40)
    real = getattr(where, what)

    def asleep(*args: object) -> object:
        monkeypatch.setattr(where, what, real)
        first.process.suspend(3600)
        first.process.sleep(1)
        return real(*args)

    monkeypatch.setattr(where, what, asleep)
    began = lab.world.now
    lab.world.at(began + 3, lambda: setattr(first.store, "fail", down))
    lab.world.at(began + 10, lambda: first.ctx.signal.ask("sigterm"))
    lab.world.at(began + 1000, second.start)
    first.start()
    lab.world.run(to_the_end=True)
    assert first.outcome.exit_code == Exit.SIGTERM and second.outcome.exit_code == Exit.OK
    assert first.outcome.unsent is None and "kept" not in said(first.outcome)
    assert "status --run" in said(first.outcome)


@pytest.mark.parametrize(("signal", "knows"), [("sigterm", True), ("stop", True), ("stop", False)])
def test_p5_a_last_step_that_others_took_over_ends_as_fenced(
    lab: Lab, signal: StopReason, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """74 would promise that it waits here; whether the heartbeat has seen the later lease or not."""
    first = lab.session(machine="shared", target_steps=40, every_steps=1000, patience_s=20.0)
    second = lab.session("bob", machine="shared", target_steps=40)
    real = session.release

    def asleep(*args: Any) -> bool:
        first.process.suspend(3600)
        first.process.sleep(1)
        if knows:
            first.ctx.signal.ask("fenced")
        return real(*args)

    monkeypatch.setattr(session, "release", asleep)
    began = lab.world.now
    lab.world.at(began + 3, lambda: setattr(first.store, "fail", down))
    lab.world.at(began + 3, lambda: first.ctx.signal.ask(signal))
    lab.world.at(began + 1000, second.start)
    first.start()
    lab.world.run(to_the_end=True)
    assert first.outcome.exit_code == Exit.FENCED, said(first.outcome)


@pytest.mark.parametrize("signal", [None, "sigterm"])
def test_what_a_machine_trained_before_it_slept_past_the_end_is_committed(lab: Lab, signal: StopReason | None) -> None:
    """No session took over; a machine whose time is up may be gone the next moment, and the step with it."""
    session = lab.session(target_steps=10_000, every_steps=10_000, budget_s=300).start()
    began = lab.world.now
    lab.world.at(began + 60, lambda: session.process.suspend(3600))
    if signal is not None:
        lab.world.at(began + 61, lambda: session.ctx.signal.ask(signal))
    lab.world.run()
    assert session.outcome.exit_code == (Exit.HANDOFF if signal is None else Exit.SIGTERM)
    assert lab.state().step == max(session.workload.trained) > 500, said(session.outcome)
    assert lab.world.now - began < 60 + 3600 + 30


def test_a_machine_that_slept_past_the_end_tries_no_longer_than_the_grace(lab: Lab) -> None:
    session = lab.session(target_steps=10_000, every_steps=10_000, budget_s=300).start()
    began = lab.world.now
    lab.world.at(began + 60, lambda: session.process.suspend(3600))
    lab.world.at(began + 60, lambda: setattr(session.store, "fail", down))
    lab.world.run()
    assert session.outcome.exit_code == Exit.UPLOAD_FAILED and session.outcome.unsent is not None
    assert lab.world.now - began < 60 + 3600 + 30


def test_an_evaluation_that_nobody_measured_takes_little_of_the_budget(lab: Lab) -> None:
    slow = ToyWorkload(evaluate_s=320)
    began = lab.world.now
    outcome = lab.run(lab.session(workload=slow, target_steps=600, every_steps=100, evaluate_every=1, budget_s=300))
    assert outcome.exit_code == Exit.OK and lab.world.now - began <= 300
    assert all(c.metric is None for c in lab.state().retained)


def test_an_evaluation_that_is_over_is_not_given_up(lab: Lab) -> None:
    """Where one part is the whole, as on a GPU, the session cannot see earlier that it takes longer than allowed."""
    workload = ToyWorkload()

    def at_once(split: str, rows: int | None, progress: Callable[[Part], None] = lambda _: None) -> dict[str, float]:
        workload.sleep(80)
        progress(Part(128, 128))
        return {"exact_accuracy": 0.5}

    workload.evaluate = at_once  # type: ignore[method-assign]
    session = lab.session(workload=workload, target_steps=600, every_steps=500, evaluate_every=1, budget_s=300)
    assert lab.run(session).exit_code == Exit.OK
    assert [c.metric for c in lab.state().retained if c.step == 500] == [0.5]


def test_a_signal_ends_an_evaluation_and_the_snapshot_is_committed(lab: Lab) -> None:
    slow = ToyWorkload(evaluate_s=320)
    session = lab.session(workload=slow, target_steps=6000, every_steps=100, evaluate_every=1).start()
    began = lab.world.now
    lab.world.at(began + 15, lambda: session.ctx.signal.ask("sigterm"))
    lab.world.run()
    assert session.outcome.exit_code == Exit.SIGTERM and lab.world.now - began < 15 + 30
    assert lab.state().step >= 100


def test_a_kill_that_follows_a_signal_meets_a_commit_even_in_a_step_that_takes_minutes(lab: Lab) -> None:
    session = lab.session(workload=ToyWorkload(step_s=60.0), target_steps=6000, every_steps=1).start()
    began = lab.world.now
    lab.world.at(began + 70, lambda: session.ctx.signal.ask("sigterm"))
    lab.world.at(began + 70 + 30, session.process.kill)
    lab.world.run()
    assert lab.state().step >= 1


def test_an_evaluation_goes_with_the_commit_of_its_own_step(lab: Lab) -> None:
    lab.run(lab.session(workload=ToyWorkload(evaluate_s=5.0), every_steps=50, evaluate_every=1))
    assert [(c.step, c.metric) for c in lab.state().retained] == [(50, 0.05), (100, 0.1)]
    assert lab.state().metrics["valid/exact_accuracy"] == 0.1
