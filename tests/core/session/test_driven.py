"""A session whose caller makes the steps: what it commits, how it ends, and what an error of the caller does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relay.core.errors import Exit, LeaseHeld
from relay.core.session.context import Context, Outcome
from relay.core.session.driven import DrivenSession
from tests.core.lab import Lab
from tests.core.toy import ToyWorkload, state_at, successor

Each = Callable[[int, Context], None]


def driven(each: Each = lambda step, ctx: None, leave_at: int = 0) -> Callable[[Context], Outcome]:
    """A loop of one's own. `each` is called inside every step, the one after the last snapshot included."""

    def run(ctx: Context) -> Outcome:
        toy, session = ctx.workload, DrivenSession(ctx)
        assert isinstance(toy, ToyWorkload)
        error: BaseException | None = None
        try:
            session.open()
            if not session.ended:
                session.begin()
            while not session.ended and not (leave_at and toy.step == leave_at):
                toy.sleep(toy.step_s)
                each(toy.step + 1, ctx)
                toy.values = successor(toy.values, toy.step)
                toy.step += 1
                session.after_step(lambda: {"loss": 1.0})
        except BaseException as raised:
            error = raised
            raise
        finally:
            session.close(error)
        assert session.outcome is not None
        return session.outcome

    return run


def go(lab: Lab, run: Callable[[Context], Outcome], account: str = "ana", **plan: object) -> Outcome:
    session = lab.session(account, **plan)  # type: ignore[arg-type]
    session.start(run)
    lab.world.run()
    return session.outcome


def stop_at(at: int) -> Each:
    return lambda step, ctx: ctx.signal.ask("stop", "enough") if step == at else None


def test_one_step_follows_the_last_snapshot_and_certifies_it(lab: Lab) -> None:
    outcome = go(lab, driven(stop_at(13)), target_steps=30)
    assert (outcome.exit_code, outcome.durable_step) == (Exit.HANDOFF, 13)
    head = lab.state().head
    assert head is not None and head.next is not None and (head.step, head.next.step) == (13, 14)
    second = lab.session("ben", target_steps=30)
    second.start(driven())
    lab.world.run()
    assert (second.outcome.exit_code, second.outcome.certified) == (Exit.OK, "exact")
    assert second.workload.values == state_at(30), "no step follows the target"
    assert lab.state().head is not None and lab.state().head.next is None


def test_a_loop_that_is_left_keeps_its_last_commit(lab: Lab) -> None:
    outcome = go(lab, driven(leave_at=17), target_steps=30, every_steps=5)
    assert (outcome.exit_code, lab.state().step, lab.state().holder) == (Exit.HANDOFF, 15, None)


def fail_at(at: int) -> Each:
    def each(step: int, ctx: Context) -> None:
        if step == at:
            raise ZeroDivisionError

    return each


def test_an_error_releases_the_lease_and_is_recorded(lab: Lab) -> None:
    with pytest.raises(ZeroDivisionError):
        go(lab, driven(fail_at(8)), target_steps=30, every_steps=5)
    state = lab.state()
    assert (state.step, state.holder, [one.cause for one in state.incidents]) == (5, None, ["crash"])


def test_an_error_after_the_last_snapshot_costs_no_commit(lab: Lab) -> None:
    def each(step: int, ctx: Context) -> None:
        stop_at(13)(step, ctx)
        fail_at(14)(step, ctx)

    with pytest.raises(ZeroDivisionError):
        go(lab, driven(each), target_steps=30)
    state = lab.state()
    assert state.step == 13 and state.head is not None and state.head.next is None and not state.incidents


def test_crashes_without_a_commit_do_not_halt_where_the_plan_says_so(lab: Lab) -> None:
    for halts in (False, False, True, True):
        with pytest.raises(ZeroDivisionError):
            go(lab, driven(fail_at(2)), target_steps=30, crashes_halt=halts)
        assert len(lab.state().failures) == halts
    assert lab.state().halted is not None and len(lab.state().incidents) == 4


def test_a_reached_target_only_loads_the_state(lab: Lab) -> None:
    go(lab, driven(), target_steps=10)
    again = lab.session("ben", target_steps=10)
    again.start(driven())
    lab.world.run()
    assert again.outcome.exit_code == Exit.OK and again.workload.values == state_at(10)


def test_a_refusal_is_raised(lab: Lab) -> None:
    first = lab.session("ana", target_steps=1000)
    first.start(driven())
    second = lab.session("ben", target_steps=1000)
    second.start(driven())
    with pytest.raises(LeaseHeld):
        lab.world.run()
