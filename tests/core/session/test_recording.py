"""A session leaves a report of itself: its content, its place, and that it costs the session nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.app.views.sessiontext import agrees
from relay.core.errors import Exit
from relay.core.ledger.sessionreport import SessionReport, parse
from relay.core.session.report import FOLDER, KEPT, WAIT_S, keep
from storage.base import Unavailable
from tests.app.recorded import report, stored
from tests.app.shown import markdown
from tests.core.lab import Lab, Session, down
from tests.core.toy import ToyWorkload


def on_disk(session: Session, epoch: int = 1) -> SessionReport:
    """The files of its own machine."""
    return parse(json.loads((session.ctx.local_folder.root / FOLDER / f"session_e{epoch}.json").read_text()))


def adds_up(report: SessionReport) -> None:
    assert sum(report.phases.values()) == pytest.approx(report.wall_s, abs=1e-6)
    assert all(seconds >= 0 for seconds in report.phases.values())


def test_it_says_what_the_ledger_says_and_more(lab: Lab) -> None:
    toy = ToyWorkload(environment={"device": "cuda", "gpu": "NVIDIA L4", "torch": "2.13", "python": "3.11"})
    session = lab.session("ana", workload=toy, target_steps=40, evaluate_every=1, every_s=1e9)
    lab.run(session)
    report, link = stored(lab), lab.state().links[0]
    assert report is not None and on_disk(session) == report
    assert agrees(report, link)
    assert (report.account, report.epoch, report.from_step, report.to_step) == ("ana", 1, 0, 40)
    assert (report.gpu, report.environment["torch"]) == ("L4", "2.13")
    assert [made.step for made in report.checkpoints] == [10, 20, 30, 40]
    assert report.checkpoints[-1].state_hash == lab.held()
    assert (report.exit_code, report.end, report.next) == (0, "target reached", None)
    assert report.validated_step == 40 and report.started == link.started
    adds_up(report)
    assert {"train", "evaluate", "upload", "release"} <= report.phases.keys()
    assert report.phases["train"] == pytest.approx(session.outcome.train_s)


def test_the_next_one_says_whom_it_follows_and_how_exactly(lab: Lab) -> None:
    lab.run(lab.session("ana", target_steps=20))
    lab.run(lab.session("ben", target_steps=40))
    report = stored(lab, 2)
    assert report and (report.follows, report.certified, report.from_step) == (1, "exact", 20)
    adds_up(report)


def kill_upload(session: Session) -> None:
    session.store.fail = lambda verb, name: down(verb, name) if "step_" in name else None


def term(session: Session) -> None:
    session.process.world.at(session.process.world.now + 3.0, lambda: session.ctx.signal.ask("sigterm"))


ENDS: dict[str, tuple[Callable[[Session], None], int, str]] = {
    "upload failed": (kill_upload, Exit.UPLOAD_FAILED, "last upload failed"),
    "terminated": (term, Exit.SIGTERM, "terminated (SIGTERM)"),
}


@pytest.mark.parametrize("how", ENDS)
def test_it_is_written_however_the_session_ends_under_the_lease(lab: Lab, how: str) -> None:
    hurt, code, end = ENDS[how]
    session = lab.session("ana", target_steps=100, budget_s=60.0, workload=ToyWorkload(step_s=0.5))
    hurt(session)
    lab.run(session)
    report = on_disk(session)
    assert (report.exit_code, report.end) == (code, end)
    assert report.unsent == (how == "upload failed")
    assert stored(lab) == report
    adds_up(report)


def test_a_crash_of_training_is_told_too(lab: Lab) -> None:
    session = lab.session("ana", workload=ToyWorkload(crash={15: ZeroDivisionError("the loop is broken")}))
    with pytest.raises(ZeroDivisionError):
        lab.run(session)
    report = on_disk(session)
    assert (report.exit_code, report.end) == (Exit.BUG, "crashed")
    assert [one.cause for one in report.incidents] == ["crash"] and report.to_step == 10


def test_a_session_that_lost_its_lease_writes_nothing_to_the_store(lab: Lab) -> None:
    early = lab.session("ana", workload=ToyWorkload(step_s=1.0), target_steps=2000, every_steps=2000).start()
    lab.world.at(lab.world.now + 30, lambda: early.process.suspend(400))
    late = lab.session("ben", workload=ToyWorkload(step_s=1.0), target_steps=30, wait_s=4000)
    lab.world.at(lab.world.now + 40, late.start)
    lab.world.run(to_the_end=True)
    assert early.outcome.exit_code == Exit.FENCED
    assert (on_disk(early).exit_code, on_disk(early).end) == (76, "fenced")
    assert stored(lab, 1) is None and stored(lab, 2) is not None


def test_a_store_that_hangs_or_refuses_costs_the_session_seconds_and_nothing_else(lab: Lab) -> None:
    def fail(verb: str, name: str) -> None:
        if "/sessions/" in name and not verb.startswith("after-"):
            session.process.sleep(1000)
            raise Unavailable("no answer")

    whole = lab.session("ana", target_steps=20)
    lab.run(whole)
    session = lab.session("ben", target_steps=40)
    session.store.fail = fail
    began = lab.world.now
    assert lab.run(session).exit_code == Exit.OK
    assert lab.world.now - began < whole.outcome.total_s + WAIT_S + 3
    assert lab.state().holder is None, "the lease had been given back before"
    assert stored(lab, 2) is None and on_disk(session, 2).to_step == 40


def test_a_full_disk_costs_nothing_but_the_report(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("relay.core.session.report.keep", full)
    assert lab.run(lab.session("ana", target_steps=20)).exit_code == Exit.OK


def test_a_second_interrupt_leaves_no_report(lab: Lab) -> None:
    session = lab.session("ana", workload=ToyWorkload(step_s=1.0))
    for _ in range(2):
        lab.world.at(lab.world.now + 5, lambda: session.ctx.signal.ask("sigint"))
    lab.run(session)
    assert session.ctx.signal.at_once
    assert stored(lab) is None


def test_this_machine_keeps_a_bounded_number(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("not a report")
    for epoch in range(1, KEPT + 4):
        keep(tmp_path, report(epoch=epoch), "words")
    epochs = sorted(int(path.stem.removeprefix("session_e")) for path in tmp_path.glob("session_e*.md"))
    assert epochs == list(range(4, KEPT + 4))
    assert len(list(tmp_path.iterdir())) == 2 * KEPT + 1


def test_who_is_next_is_told_unless_nothing_is_left_to_train(lab: Lab) -> None:
    for reason, target, next_one in (("stop", 100, "ben"), ("", 40, None)):
        session = lab.session("ana", workload=ToyWorkload(step_s=0.5), target_steps=target)
        session.ctx.successor = lambda state: "ben"
        if reason:
            lab.world.at(lab.world.now + 5, lambda: session.ctx.signal.ask("stop"))  # noqa: B023 (called at once)
        lab.run(session)
        told = on_disk(session, lab.state().epoch)
        assert told.next == next_one
        assert ("ben" in markdown(told)) == (next_one is not None)
    after = markdown(report(next="ben"), to_type="go").partition("## Next")[2]
    assert "ben" in after.splitlines()[0] and after.rstrip().endswith("```sh\ngo\n```")
