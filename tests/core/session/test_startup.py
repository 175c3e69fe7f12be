"""Where a session's time goes before its first step, and which share of it is spent in steps, is in every report."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from relay.app.commands.sessions.outcomes import Ended, document, sentence
from relay.app.messages.events import line
from relay.core.errors import Exit
from relay.core.events import Committed, Started
from relay.core.session.context import Outcome, fraction
from relay.core.session.timing import Startup
from tests.app.cli import Desk
from tests.core.lab import Lab, with_plan
from tests.core.toy import ToyWorkload


def started() -> Startup:
    startup = Startup(since=100.0, inside=lambda: {"compile": 4.0, "capture": 1.0})
    for phase, now in (("import", 103.0), ("data", 103.5), ("lease", 104.0), ("restore", 106.0), ("first_step", 112.0)):
        startup.mark(phase, now)
    return startup


def test_phases_are_told_for_a_long_start_and_add_up() -> None:
    startup = started()
    assert startup.total_s == 12.0
    told = line(Started(12.0, startup.phases, startup.inside()))
    assert re.findall(r"[\d.]+(?= s)", told) == ["12", "3.0", "0.5", "0.5", "2.0", "6.0", "4.0", "1.0"]
    assert startup.document() == {
        "import_s": 3.0, "data_s": 0.5, "lease_s": 0.5, "restore_s": 2.0, "first_step_s": 6.0, "compile_s": 4.0,
        "capture_s": 1.0,
    }  # fmt: skip


def test_a_short_start_is_not_told_and_one_that_trained_nothing_has_no_first_step() -> None:
    short = Startup(since=0.0, inside=lambda: {"compile": 1.0})
    short.mark("import", 1.0)
    assert line(Started(short.total_s, short.phases)) == ""
    assert short.document() == {"import_s": 1.0}
    nobody = Startup()
    nobody.mark("import", 50.0)
    assert nobody.document() == {}


def test_goodput_is_training_over_the_life_of_the_process() -> None:
    outcome = Outcome(Exit.OK, 5, made_step=5, commits=1, train_s=90.0, total_s=95.0, start_s=5.0)
    assert outcome.goodput == 0.9
    assert "goodput 90%" in sentence(Ended(outcome, "Done."))
    assert document(Ended(outcome, "Done."), "relay.run/1")["goodput"] == 0.9
    assert (fraction(1.0, 0.0), fraction(3.0, 2.0), fraction(-1.0, 2.0)) == (0.0, 1.0, 0.0)


def test_commits_carry_the_goodput_so_far(lab: Lab) -> None:
    """Ten seconds of start-up, then steps all the time: 100 s of 110, minus the cost of commits."""
    session = lab.session(budget_s=1000.0, target_steps=1000, every_steps=100, workload=ToyWorkload(step_s=0.1))
    limits = session.ctx.plan.limits
    with_plan(session, limits=replace(limits, started=limits.started - 10.0))
    lab.run(session)
    assert lab.state().metrics["goodput"] == pytest.approx(100 / 110, abs=0.03)


def test_report_tells_goodput_and_run_tells_the_phases(tmp_path) -> None:
    desk = Desk(tmp_path / "desk")
    done = desk("run", "--run", "r", "--account", "account_1", "--target-steps", "20", "--new", "--json").json
    assert 0 <= done["goodput"] <= 1
    assert set(done["startup"]) == {"import_s", "data_s", "lease_s", "restore_s", "first_step_s", "compile_s"}
    assert sum(done["startup"].values()) <= done["start_s"] + done["session_s"] + 0.01
    report = desk("report", "--run", "r")
    assert "Goodput:" in report.out
    told = desk("report", "--run", "r", "--json").json["goodput"]
    assert 0 <= told <= 1


@pytest.mark.parametrize(("compile_s", "step"), [(0.0, 1), (40.0, 31)])
def test_the_first_commit_does_not_count_compiling(lab: Lab, compile_s: float, step: int) -> None:
    """A session that compiled for half a minute sent a checkpoint of its first step."""
    toy = ToyWorkload(step_s=1.0)
    session = lab.session(workload=toy, budget_s=300, every_steps=10**6, target_steps=10**6)
    session.ctx.startup = Startup(inside=lambda: {"compile": compile_s})
    sleep, first = toy.sleep, iter([40.0])
    toy.sleep = lambda seconds: sleep(next(first, seconds))
    lab.run(session)
    assert min(event.step for event in session.heard.events if isinstance(event, Committed)) == step
