"""A session's ends all lead to one chain of states: the one an unbroken run has."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.core.checkpoint.retention import Keep
from relay.core.errors import Exit
from tests.core.lab import Lab, said
from tests.core.toy import ToyWorkload, hash_of, state_at
from tests.rehash import held


def unbroken(step: int) -> str:
    return hash_of(step, state_at(step))


def assert_unbroken(lab: Lab) -> None:
    """Every checkpoint ever retained is the state an unbroken run has at its step."""
    state = lab.state()
    assert state.head is not None and state.step == state.head.step
    assert [held(lab.shared, c) for c in state.retained] == [unbroken(c.step) for c in state.retained]


def test_one_session_reaches_its_target(lab: Lab) -> None:
    outcome = lab.run(lab.session())
    assert outcome.exit_code == Exit.OK, said(outcome)
    state = lab.state()
    assert state.step == 100 and state.holder is None
    assert state.links[-1].end == "target reached"
    assert_unbroken(lab)


def test_many_sessions_ended_by_their_budget_equal_an_unbroken_one(lab: Lab) -> None:
    outcomes = [lab.run(lab.session(f"account_{n}", budget_s=12, target_steps=330)) for n in range(4)]
    assert [o.exit_code for o in outcomes[:-1]] == [Exit.HANDOFF] * 3
    assert all(o.total_s < 12 for o in outcomes)
    assert all(o.durable_step > o.from_step for o in outcomes), "each session gives something"
    assert_unbroken(lab)
    assert [link.certified for link in lab.state().links] == ["unknown", "exact", "exact", "exact"]


def test_a_budget_end_loses_no_step(lab: Lab) -> None:
    session = lab.session(budget_s=9, every_steps=50)
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.HANDOFF
    assert max(session.workload.trained) - outcome.durable_step == 1, "only the extra step is thrown away"


@pytest.mark.parametrize("begun", [False, True], ids=["at step 0", "from a checkpoint"])
def test_a_session_without_time_for_a_step_says_so(lab: Lab, begun: bool) -> None:
    """A launcher starts it again with the same time, so its last line has to name the cause."""
    if begun:
        assert "no time" not in said(lab.run(lab.session(budget_s=12, target_steps=330)))
    before = lab.state().step if begun else 0
    outcome = lab.run(lab.session("account_1", budget_s=2, target_steps=330))
    assert (outcome.exit_code, outcome.durable_step, outcome.train_s) == (Exit.HANDOFF, before, 0)
    assert "no time for a step" in said(outcome)


@pytest.mark.slow
@given(delay=st.floats(0.0, 0.8), budget=st.floats(20, 60), every=st.integers(10, 80), seed=st.integers(0, 99))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_budget_is_never_overrun_however_slow_the_store(
    delay: float, budget: float, every: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of 20 s: taking a lease and giving it back are 21 requests, and the last second waits for the release."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.world.random.seed(seed)
    session = lab.session(budget_s=budget, every_steps=every, target_steps=10_000, delay_s=delay)
    began = lab.world.now
    outcome = lab.run(session)
    assert lab.world.now - began <= budget, said(outcome)
    assert outcome.exit_code in (Exit.HANDOFF, Exit.UPLOAD_FAILED)
    if outcome.exit_code == Exit.UPLOAD_FAILED:
        assert outcome.unsent is not None, "kept for the next run on this machine"
    lab.world.close()


@pytest.mark.parametrize(("reason", "code"), [("sigterm", 143), ("sigint", 130), ("stop", 75)])
def test_a_request_to_end_commits_and_names_its_code(lab: Lab, reason: str, code: int) -> None:
    session = lab.session().start()
    lab.world.at(lab.world.now + 4.55, lambda: session.ctx.signal.ask(reason))
    lab.world.run()
    assert session.outcome.exit_code == code
    assert reason == "stop" or f"({reason.upper()})" in said(session.outcome)
    assert session.outcome.durable_step > 30
    assert lab.state().holder is None
    lab.run(lab.session("bob"))
    assert_unbroken(lab)


def test_a_second_sigint_stops_at_once(lab: Lab) -> None:
    session = lab.session(delay_s=5.0).start()
    lab.world.at(lab.world.now + 120, lambda: session.ctx.signal.ask("sigint"))
    lab.world.at(lab.world.now + 121, lambda: session.ctx.signal.ask("sigint"))
    before = lab.world.now
    lab.world.run()
    assert session.outcome.exit_code == Exit.SIGINT
    assert lab.world.now - before < 123


@pytest.mark.slow
@given(kills=st.lists(st.floats(0.1, 11.0), min_size=1, max_size=3), seed=st.integers(0, 2**16))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sessions_killed_at_any_moment_equal_an_unbroken_one(
    kills: list[float], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.world.random.seed(seed)
    for n, after in enumerate(kills):
        session = lab.session(f"account_{n}", machine="same").start()
        lab.world.at(lab.world.now + after, session.process.kill)
        lab.world.run()
        lab.world.now += 300  # its lease runs out
    outcome = lab.run(lab.session("last", machine="same"))
    assert outcome.exit_code == Exit.OK, said(outcome)
    assert_unbroken(lab)
    lab.world.close()


def test_a_target_that_is_reached_needs_no_lease(lab: Lab) -> None:
    lab.run(lab.session())
    entries = len(lab.kinds())
    outcome = lab.run(lab.session("bob"))
    assert (outcome.exit_code, outcome.durable_step, outcome.epoch) == (Exit.OK, 100, 0)
    assert len(lab.kinds()) == entries


def test_a_raised_target_goes_on(lab: Lab) -> None:
    lab.run(lab.session())
    assert lab.run(lab.session("bob", target_steps=130)).durable_step == 130
    assert_unbroken(lab)


def test_i7_another_result_of_the_first_step_is_labelled_with_what_changed(lab: Lab) -> None:
    lab.run(lab.session(target_steps=50))
    other = ToyWorkload(impure=1, environment={"device": "toy", "driver": "2"})
    outcome = lab.run(lab.session("bob", workload=other))
    assert outcome.certified == "not-exact"
    assert lab.state().links[-1].certified == "not-exact"
    assert lab.state().links[-1].why == "driver absent -> 2"


def test_i7_another_path_is_unknown(lab: Lab) -> None:
    lab.run(lab.session(target_steps=50))
    assert lab.run(lab.session("bob", workload=ToyWorkload(path="compiled"))).certified == "unknown"
    assert "toy" in lab.state().links[-1].why and "compiled" in lab.state().links[-1].why


def test_commits_mid_session_carry_the_digest_of_the_next_step(lab: Lab) -> None:
    lab.run(lab.session(keep=_keep_all()))
    for checkpoint in lab.state().retained:
        assert checkpoint.next is not None
        assert checkpoint.next.digest == unbroken(checkpoint.step + 1)


def test_commits_are_anchored_to_global_steps(lab: Lab) -> None:
    lab.run(lab.session(target_steps=25, keep=_keep_all()))
    lab.run(lab.session("bob", target_steps=55, keep=_keep_all()))
    assert [c.step for c in lab.state().retained] == [10, 20, 25, 30, 40, 50, 55]


def test_commits_fall_due_by_time_too(lab: Lab) -> None:
    outcome = lab.run(lab.session(every_steps=1000, every_s=3.0, target_steps=100))
    assert outcome.commits == 4
    assert outcome.interval_s == pytest.approx(3.0, abs=0.3)


def test_the_best_is_chosen_by_validation(lab: Lab) -> None:
    lab.run(lab.session(evaluate_every=2))
    state = lab.state()
    assert state.best == (100, 1)
    assert state.head.metric == pytest.approx(0.1)
    assert state.metrics["valid/exact_accuracy"] == pytest.approx(0.1)


def _keep_all() -> Keep:
    return Keep(last=50)


def test_a_disk_that_cannot_keep_a_checkpoint_is_refused_before_the_lease(lab: Lab) -> None:
    entries = len(lab.kinds())
    session = lab.session()
    session.ctx.local_folder.root.parent.mkdir(parents=True)
    session.ctx.local_folder.root.write_text("a file where the folder should be")
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.BAD_CONFIG and "sync_dir" in said(outcome)
    assert not session.workload.trained and len(lab.kinds()) == entries


class _Broken:
    """A digest on a device that has failed since."""

    def __init__(self, step: int) -> None:
        self.step, self.path = step, "toy"

    @property
    def digest(self) -> str:
        raise RuntimeError("device lost")


def test_a_device_that_fails_at_the_next_step_costs_its_digest_not_the_commit(lab: Lab) -> None:
    session = lab.session(keep=_keep_all(), target_steps=30)
    real = session.workload.digest
    session.workload.digest = lambda: _Broken(11) if session.workload.step == 11 else real()  # type: ignore
    lab.run(session)
    assert {c.step: c.next is not None for c in lab.state().retained} == {10: False, 20: True, 30: True}
    assert_unbroken(lab)
