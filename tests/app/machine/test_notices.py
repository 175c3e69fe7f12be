"""A machine that is taken back: the session ends in the time left of its notice, with 75, and loses no commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relay.app.machine.notices import POLL_S, watching
from relay.app.machine.spot import Notice
from relay.core.errors import Exit
from relay.core.lease.signals import StopSignal
from relay.core.session.context import Context, Outcome
from relay.core.session.ending import NotSent
from relay.core.session.session import run_session
from tests.core.lab import Lab, Session, said
from tests.core.toy import ToyWorkload, state_at

NOTICE = "spot notice from aws, {:.0f} s left"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def watched(session: Session, look: Callable[[], Notice | None]) -> Callable[[Context], Outcome]:
    """The session as `run` starts it."""

    def run(ctx: Context) -> Outcome:
        with watching(look, ctx.runtime, ctx.signal, session.told.append):
            return run_session(ctx)

    return run


def taken(lab: Lab, session: Session, after_s: float, left_s: float) -> Outcome:
    """Run a session whose machine is taken back some time after its start."""
    at = lab.world.now + after_s
    look = lambda: Notice("aws", left_s) if lab.world.now >= at else None  # noqa: E731 - one line says it
    session.start(watched(session, look))
    lab.world.run()
    assert lab.world.now <= at + POLL_S + left_s, "the machine was gone before its session"
    return session.outcome


def test_a_notice_ends_the_session_with_a_last_commit_and_75(lab: Lab) -> None:
    session = lab.session(target_steps=10_000, every_steps=100)
    outcome = taken(lab, session, 33.0, 118.0)
    state = lab.state()
    assert outcome.exit_code is Exit.HANDOFF and outcome.durable_step == state.step
    assert state.step == session.workload.step - 1, "all but the step that is tried out after the last"
    assert state.holder is None and state.links[-1].end == NOTICE.format(118)
    assert outcome.end == NOTICE.format(118) and f"{state.step:,}" in said(outcome)


def test_the_next_session_goes_on_exactly(lab: Lab) -> None:
    taken(lab, lab.session(target_steps=10_000, every_steps=100), 33.0, 30.0)
    step = lab.state().step
    workload = ToyWorkload()
    outcome = lab.run(lab.session("bob", target_steps=step + 20, workload=workload))
    assert outcome.exit_code is Exit.OK and outcome.certified == "exact"
    assert workload.values == state_at(workload.step)


def slow_puts(session: Session, seconds: float) -> None:
    session.store.fail = lambda verb, name: session.process.sleep(seconds) if verb == "put" else None


def test_where_the_last_upload_cannot_end_in_time_the_last_commit_stands(lab: Lab) -> None:
    session = lab.session(target_steps=10_000, every_steps=400)
    slow_puts(session, 15.0)
    here: list[int] = []
    session.ctx.listener.event = lambda event: here.extend(packed.step for packed in session.ctx.local_folder.all())
    outcome = taken(lab, session, 300.0, 25.0)
    state = lab.state()
    assert session.workload.step in here, "it was kept before anything was waited for"
    assert outcome.exit_code is Exit.HANDOFF and 0 < state.step < session.workload.step
    assert outcome.spared == NOTICE.format(25) and isinstance(outcome.failure, NotSent)
    assert outcome.failure.durable == state.step and state.links[-1].end.startswith(f"{NOTICE.format(25)}; ")
    assert state.holder is None
    assert outcome.unsent is not None and outcome.unsent.is_dir()


def test_a_last_upload_that_fits_is_made_though_it_is_slow(lab: Lab) -> None:
    session = lab.session(target_steps=10_000, every_steps=400)
    slow_puts(session, 15.0)
    outcome = taken(lab, session, 300.0, 118.0)
    assert outcome.exit_code is Exit.HANDOFF and lab.state().step == session.workload.step - 1


def test_an_evaluation_is_given_up(lab: Lab) -> None:
    workload = ToyWorkload(evaluate_s=600.0)
    session = lab.session(target_steps=10_000, evaluate_every=1, workload=workload)
    outcome = taken(lab, session, 40.0, 60.0)
    assert outcome.exit_code is Exit.HANDOFF and outcome.durable_step == lab.state().step > 0


def test_a_notice_while_another_session_is_waited_for_takes_no_lease(lab: Lab) -> None:
    holder = lab.session("alice", target_steps=100, workload=ToyWorkload(step_s=10.0)).start()
    waiting = lab.session("bob", target_steps=100, wait_s=3600.0)
    began, ended = lab.world.now + 10.0, []

    def run(ctx: Context) -> Outcome:
        ctx.runtime.sleep(began - lab.world.now)
        outcome = watched(waiting, lambda: Notice("aws", 30.0) if lab.world.now > began + 20 else None)(ctx)
        ended.append(lab.world.now)
        return outcome

    waiting.start(run)
    lab.world.run()
    assert waiting.outcome.exit_code is Exit.HANDOFF and ended[0] < began + 20 + POLL_S + 30
    assert NOTICE.format(30) in said(waiting.outcome)
    assert holder.outcome.exit_code is Exit.OK and [link.account for link in lab.state().links] == ["alice"]


def test_an_address_that_hangs_disturbs_no_training(lab: Lab) -> None:
    session = lab.session(target_steps=50)

    def hangs() -> None:
        session.process.sleep(10_000.0)

    session.start(watched(session, hangs))
    lab.world.run()
    assert session.outcome.exit_code is Exit.OK and session.outcome.total_s < 20


def test_a_session_that_has_ended_asks_no_more(lab: Lab) -> None:
    session, asked = lab.session(target_steps=50), []
    session.start(watched(session, lambda: asked.append(lab.world.now)))
    lab.world.run()
    ended = lab.world.now
    lab.run(lab.session("bob", target_steps=1000, every_steps=500))
    assert len(asked) >= 2 and max(asked) <= ended < lab.world.now


def test_signals_are_more_urgent_than_a_notice() -> None:
    stop = StopSignal()
    stop.ask("stop")
    stop.warn("spot notice from gcp, 25 s left", 100.0)
    assert (stop.reason, stop.until, stop.hurry) == ("notice", 100.0, True)
    stop.ask("sigterm", "SIGTERM")
    stop.warn("again", 200.0)
    assert (stop.reason, stop.until) == ("sigterm", 100.0)
