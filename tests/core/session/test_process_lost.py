"""A process that shares each step is gone: the session commits the last whole step and ends; it is not a crash."""

from __future__ import annotations

import pytest

from relay.core.errors import Exit
from relay.core.events import ProcessGone
from relay.core.ledger import frozen
from relay.core.workload import ProcessLost
from tests.core.lab import Lab, said
from tests.core.toy import ToyWorkload, hash_of, state_at

GONE = "Process 2 of 2 is gone."


@pytest.mark.parametrize(("whole", "durable"), [(True, 44), (False, 40)])
def test_the_last_whole_step_is_committed(lab: Lab, whole: bool, durable: int) -> None:
    session = lab.session(workload=ToyWorkload(crash={44: ProcessLost(GONE, whole)}), evaluate_every=1)
    outcome = lab.run(session)
    state = lab.state()
    assert (outcome.exit_code, outcome.failure) == (Exit.HANDOFF, None)
    assert state.step == durable and lab.held() == hash_of(durable, state_at(durable))
    assert state.links[-1].end == frozen.PROCESS_LOST and state.holder is None
    assert (state.halted, state.failures, state.deaths, state.incidents) == (None, (), 0, ())
    assert [event.step for event in session.heard.events if isinstance(event, ProcessGone)] == [44]
    assert session.workload.trained[-1] == 44, "no step for the digest follows"
    assert GONE in " ".join(session.told) and "bug" not in said(outcome)
    assert lab.run(lab.session("bob")).exit_code == Exit.OK


@pytest.mark.parametrize(("reason", "code"), [("sigterm", 143), ("sigint", 130), ("stop", 75)])
def test_a_signal_that_came_too_decides_the_exit_code(lab: Lab, reason: str, code: int) -> None:
    """torchrun sends SIGTERM to the processes that are left."""
    toy = ToyWorkload(crash={44: ProcessLost(GONE, whole=True)})
    session = lab.session(workload=toy)
    lab.world.at(lab.world.now + 4.55, lambda: session.ctx.signal.ask(reason))  # type: ignore[arg-type]
    assert lab.run(session).exit_code == code
    assert lab.state().step >= 44 and lab.state().holder is None


def test_a_snapshot_on_its_way_is_committed_first(lab: Lab) -> None:
    session = lab.session(workload=ToyWorkload(crash={44: ProcessLost(GONE, whole=False)}), delay_s=0.4)
    assert lab.run(session).exit_code == Exit.HANDOFF
    assert lab.state().step == 40


def test_before_the_first_step_there_is_nothing_to_commit(lab: Lab) -> None:
    for _ in range(3):
        outcome = lab.run(lab.session(workload=ToyWorkload(crash={0: ProcessLost(GONE, whole=True)})))
        assert outcome.exit_code == Exit.HANDOFF and outcome.durable_step == 0
    assert lab.state().halted is None
