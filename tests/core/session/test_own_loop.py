"""A loop that makes its own steps and calls `after_step` gets what a session's own loop gets, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relay.core.checkpoint.restore import Restored
from relay.core.errors import Exit
from relay.core.session.context import Outcome
from relay.core.session.training import End, Trainer
from relay.core.workload import Progress
from tests.core.fake_runtime import World
from tests.core.lab import Lab, Session
from tests.core.toy import ToyWorkload, state_at, successor

Run = Callable[[Trainer, Restored | None], End]


def own_loop(trainer: Trainer, restored: Restored | None) -> End:
    """As a person would write it; no step goes through `Workload.advance`."""
    toy = trainer._workload
    assert isinstance(toy, ToyWorkload)
    end = trainer.begin(restored)
    while end is None:
        report = trainer.report_of(toy.step + 1)
        toy.sleep(toy.step_s)
        if toy.step in toy.crash:
            raise toy.crash[toy.step]
        toy.values = successor(toy.values, toy.step)
        toy.step += 1
        toy.trained.append(toy.step)
        if report is not None:
            report(Progress(toy.step, {"loss": 1.0 / toy.step}))
        end = trainer.after_step()
    return end


@pytest.fixture(params=[Trainer.run, own_loop], ids=["run", "own"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(Trainer, "run", request.param)
    return request.param


def stored(lab: Lab) -> dict[str, bytes]:
    """Every object of the store but the heartbeats and the sessions' own reports."""
    return {
        stat.name: lab.shared.get(stat.ref)
        for stat in lab.shared.list("")
        if "/heartbeat" not in stat.name and "/sessions/" not in stat.name
    }


def story(tmp: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> tuple[dict[str, bytes], list[Outcome]]:
    """Three sessions: one whose commits come by time and evaluation, one that a signal ends, one to the target."""
    monkeypatch.setattr(Trainer, "run", run)
    lab = Lab(tmp, World())
    one = lab.run(lab.session("ana", target_steps=43, every_steps=20, every_s=1.7, evaluate_every=1))
    two = lab.session("ben", target_steps=200, every_steps=7)
    lab.world.at(lab.world.now + 5.0, lambda: two.ctx.signal.ask("sigterm", "SIGTERM"))
    outcomes = [one, lab.run(two)]
    outcomes.append(lab.run(lab.session("cem", target_steps=120, every_steps=15, delay_s=0.3)))
    lab.world.close()
    return stored(lab), outcomes


def test_an_own_loop_gives_the_same_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_run, ends = story(tmp_path / "run", monkeypatch, Trainer.run)
    by_loop, same = story(tmp_path / "own", monkeypatch, own_loop)
    assert [one.exit_code for one in ends] == [Exit.OK, Exit.SIGTERM, Exit.OK]
    assert by_loop.keys() == by_run.keys() and len([name for name in by_run if "manifest" in name]) > 3
    assert [name for name in by_run if by_loop[name] != by_run[name]] == []
    assert [(one.certified, one.commits, one.train_s) for one in same] == [
        (one.certified, one.commits, one.train_s) for one in ends
    ]


def test_its_steps_are_certified_and_its_state_is_the_unbroken_run_s(lab: Lab, run: Run) -> None:
    lab.run(lab.session("ana", target_steps=30))
    session = lab.session("ben", target_steps=60)
    assert lab.run(session).certified == "exact"
    assert session.workload.values == state_at(61), "60 and the step that promises what follows"
    head = lab.state().head
    assert head is not None and head.step == 60 and head.next is not None and head.next.step == 61


def test_reports_come_by_number_and_wait_for_a_device_no_oftener(lab: Lab, run: Run) -> None:
    session = lab.session(target_steps=73, every_steps=30, workload=ToyWorkload(report_every=20))
    reported: list[int] = []
    session.ctx.listener.progress = lambda progress: reported.append(progress.step)
    lab.run(session)
    assert reported == [1, 20, 30, 40, 60, 73], "the first, every 20th, at commits by number, and the last"


def test_a_step_that_fails_beside_a_commit_leaves_the_commit_whole(lab: Lab, run: Run) -> None:
    with pytest.raises(ZeroDivisionError):
        lab.run(lab.session(every_steps=50, workload=ToyWorkload(crash={50: ZeroDivisionError()})))
    state = lab.state()
    assert state.head is not None and state.head.step == 50 and state.head.next is None
    assert [failure.cause for failure in state.failures] == ["crash"]


def test_a_loop_that_stops_by_itself_keeps_its_last_step(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It broke off right after a commit began: no caller waits for the step that would have followed."""

    def broken_off(trainer: Trainer, restored: Restored | None) -> End:
        toy = trainer._workload
        trainer.begin(restored)
        while toy.step < 50:
            toy.advance(toy.step + 1, lambda: False, None)
            trainer.after_step()
        return "stop"

    monkeypatch.setattr(Trainer, "run", broken_off)
    session: Session = lab.session(every_steps=50)
    began = lab.world.now
    assert lab.run(session).exit_code == Exit.HANDOFF
    assert lab.state().step == 50 and lab.world.now - began < 60
