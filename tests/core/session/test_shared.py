"""What a session may change for everybody, each change recorded: the target and the retention. And what it carries on:
the newest evaluation."""

from __future__ import annotations

import pytest

from relay.core.checkpoint.retention import Keep
from relay.core.errors import Exit
from relay.core.ledger import evaluations, frozen
from relay.core.ledger.evaluations import Evaluation
from relay.core.ledger.state import RunState
from relay.core.ledger.target import LowerTarget, Rule, TargetBehind, newest_change, target_after
from relay.core.session.session import push
from tests.core.lab import Lab
from tests.core.toy import ToyWorkload

RAISE, KEEP = {"target_rule": Rule.RAISE}, {"target_rule": Rule.KEEP}


def record(lab: Lab) -> str:
    change = newest_change(lab.state())
    return change.text if change else ""


def test_a_session_may_end_before_the_target_which_stays(lab: Lab) -> None:
    one = lab.run(lab.session("ana", target_steps=40))
    assert (one.exit_code, one.durable_step) == (Exit.OK, 40)
    ben = lab.run(lab.session("ben", target_steps=100, until_step=65, **RAISE))
    assert (ben.exit_code, ben.durable_step, ben.end) == (Exit.HANDOFF, 65, frozen.UNTIL_REACHED)
    assert lab.state().target_steps == 100
    entries = len(lab.kinds())
    again = lab.run(lab.session("ben", until_step=65, **KEEP))
    assert (again.exit_code, again.durable_step, len(lab.kinds())) == (Exit.OK, 65, entries), "nothing to do, no lease"
    assert again.idle and (again.idle.last_step, again.idle.target_steps) == (65, 100)
    last = lab.run(lab.session("cleo", until_step=1000, **KEEP))
    assert (last.exit_code, last.durable_step, last.certified) == (Exit.OK, 100, "exact")


def test_a_higher_target_is_everybodys_and_recorded(lab: Lab) -> None:
    lab.run(lab.session("ana", target_steps=20))
    assert record(lab) == "", "the first target changes nothing"
    lab.run(lab.session("ben", target_steps=30, **RAISE))
    assert record(lab) == "target raised 20 → 30 by ben"
    assert any("20 → 30" in line for line in lab.told)
    lab.run(lab.session("cleo", target_steps=1000, until_step=35, **RAISE))
    assert record(lab) == "target raised 30 → 1,000 by cleo"
    lab.run(lab.session("dora", target_steps=5, until_step=40, **KEEP))
    assert (lab.state().target_steps, record(lab)) == (1000, "target raised 30 → 1,000 by cleo")


def test_a_lower_target_is_refused_and_nothing_is_written(lab: Lab) -> None:
    lab.run(lab.session("ana", target_steps=100, until_step=20))
    entries = len(lab.kinds())
    outcome = lab.run(lab.session("ben", target_steps=60, **RAISE))
    assert (outcome.exit_code, len(lab.kinds())) == (Exit.BAD_CONFIG, entries)
    assert isinstance(outcome.failure, LowerTarget)
    assert (outcome.failure.target, outcome.failure.asked) == (100, 60)


def test_a_new_target_is_lower_on_purpose_never_behind_the_head_and_recorded(lab: Lab) -> None:
    lab.run(lab.session("ana", target_steps=100, until_step=20))
    behind = lab.run(lab.session("ben", target_steps=10, target_rule=Rule.REPLACE))
    assert isinstance(behind.failure, TargetBehind) and (behind.failure.step, behind.exit_code) == (20, 78)
    lower = lab.run(lab.session("ben", target_steps=40, target_rule=Rule.REPLACE))
    assert (lower.exit_code, lower.durable_step, lab.state().target_steps) == (Exit.OK, 40, 40)
    assert record(lab) == "target lowered 100 → 40 by ben"
    lab.run(lab.session("ana", target_steps=90, until_step=50))
    here = lab.run(lab.session("ben", target_steps=50, target_rule=Rule.REPLACE))
    assert (here.exit_code, here.commits, lab.state().target_steps) == (Exit.OK, 0, 50), "it ends the run where it is"
    assert record(lab) == "target lowered 90 → 50 by ben"


def test_a_target_that_rose_while_a_session_waited_stays(lab: Lab) -> None:
    """Its number was the run's own as it began to wait."""
    lab.run(lab.session("ana", target_steps=40, until_step=10))
    waiting = lab.session("ben", target_steps=40, target_rule=Rule.KEEP, wait_s=3600, until_step=30)
    raising = lab.session("ana", target_steps=70, until_step=20, **RAISE).start()
    lab.world.at(lab.world.now + 0.2, waiting.start)
    lab.world.run()
    assert (raising.outcome.exit_code, waiting.outcome.exit_code) == (Exit.HANDOFF, Exit.HANDOFF)
    assert (lab.state().target_steps, record(lab)) == (70, "target raised 40 → 70 by ana")
    assert target_after(lab.state(), 40, Rule.RAISE) == 70, "also for a session that asked for what the run had then"


def test_a_push_changes_no_target(lab: Lab) -> None:
    lab.run(lab.session("ana", target_steps=40, until_step=10))
    lab.run(lab.session("ben", machine="same", target_steps=40, until_step=20))
    lab.session("ben", machine="same", target_steps=5, target_rule=Rule.KEEP).start(push)
    lab.world.run()
    assert lab.state().target_steps == 40


def test_whoever_keeps_less_than_usual_is_recorded(lab: Lab) -> None:
    lab.run(lab.session("ana", target_steps=60))
    assert [c.step for c in lab.state().retained] == [40, 50, 60]
    lab.run(lab.session("ben", target_steps=80, keep=Keep(2)))
    (noted,) = [one for one in lab.state().incidents if one.cause == frozen.RETENTION]
    assert (noted.account, noted.text) == ("ben", "ben keeps the last 2: step 40 retired")
    lab.run(lab.session("ben", target_steps=100, keep=Keep(2)))
    assert sum(one.cause == frozen.RETENTION for one in lab.state().incidents) == 1, "once: it changes nothing more"


def test_the_newest_evaluation_never_goes_back_after_retention(lab: Lab) -> None:
    """The best is an early step; the newest one's checkpoint is retired long before the next evaluation."""
    scores = {20: 0.9, 40: 0.5}

    class Scored(ToyWorkload):
        def evaluate(self, split, rows, progress=lambda done: None):  # type: ignore[no-untyped-def]
            return {"exact_accuracy": scores[self.step], "n": 128.0}

    lab.run(lab.session("ana", workload=Scored(), target_steps=500, until_step=45, evaluate_every=2))
    lab.run(lab.session("ben", target_steps=500, until_step=95))
    state = lab.state()
    assert 40 not in {c.step for c in state.retained} and 20 in {c.step for c in state.retained}
    assert evaluations.newest(state) == Evaluation(40, 0.5, 128)
    assert evaluations.best(state) == Evaluation(20, 0.9)


@pytest.mark.parametrize(
    "metrics",
    [
        {frozen.EVALUATED_STEP: 900.0},
        {frozen.EVALUATED_STEP: 900.0, frozen.EVALUATED_SCORE: 1.0},
        {frozen.EVALUATED_STEP: 12.5, frozen.EVALUATED_SCORE: 1.0},
        {frozen.EVALUATED_STEP: -1.0, frozen.EVALUATED_SCORE: 1.0},
    ],
)
def test_an_evaluation_that_cannot_be_true_is_not_shown(lab: Lab, metrics: dict[str, float]) -> None:
    lab.run(lab.session("ana", target_steps=20))
    state: RunState = lab.state().model_copy(update={"metrics": metrics})
    assert evaluations.newest(state) is None


def test_a_note_is_recorded_for_everybody_as_one_clean_line(lab: Lab) -> None:
    lab.run(lab.session("ana", target_steps=20, note="lower rate\x1b[31m\u202e <b>now</b>"))
    (noted,) = [one for one in lab.state().incidents if one.cause == frozen.NOTE]
    assert (noted.account, noted.epoch, noted.step, noted.text) == ("ana", 1, 0, "lower rate [31m <b>now</b>")
    lab.run(lab.session("ben", target_steps=30))
    assert sum(one.cause == frozen.NOTE for one in lab.state().incidents) == 1
