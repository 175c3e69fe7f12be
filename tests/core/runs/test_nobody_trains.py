"""Runs that no account may train, and stores that accept no writes: the files, room and help reported to readers."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay.app.checks import checkup
from relay.app.commands.looking import reports as inspecting
from relay.app.dashboard.data import Seen, incident_rows
from relay.app.dashboard.sessions import kind_of_end
from relay.app.views.report import report_document
from relay.core.checkpoint.local import LocalFolder
from relay.core.ledger.frozen import GONE
from relay.core.ledger.sessionreport import SessionReport
from relay.core.ledger.state import Incident, Link, RunState
from relay.people.history import history
from relay.people.plan import Range
from storage.base import Denied, QuotaExceeded, Ref
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores
from tests.app.shown import document, draw
from tests.core.lab import Lab, down
from tests.people.views import MACHINE, NOW, trained, view

STOPS = {
    "halted": {"halted": "The same failure came twice."},
    "archived": {"archived": NOW - 60},
    "deleted": {"archived": NOW - 90_000, "deleted": NOW - 60, "head": None, "retained": ()},
}


@pytest.mark.parametrize("phase", list(STOPS))
def test_no_time_is_left_of_a_run_that_nobody_may_train(phase: str) -> None:
    """A report gave 10 hours of training left, a free lease and whose turn it is."""
    stopped = view(trained(next="account_1", **STOPS[phase]))
    told = draw(stopped, MACHINE)
    lines = {line.strip("║ ").partition(": ")[0]: line for line in told.splitlines()}
    assert phase in lines["ETA"] and phase in lines["Lease"] and " h " not in lines["ETA"]
    assert report_document(stopped, MACHINE)["eta_training_s"] is None
    planned_before = Range(NOW, NOW + 1, NOW + 2)
    page = document(Seen(stopped, finish=planned_before))
    head = page["header"]
    assert (head["phase"], head["training_left_s"], head["finish"], head["next"]) == (phase, None, None, None)
    assert head["lease"] == {"state": "none"} and not any(row["next"] for row in page["accounts"])


def test_a_run_that_may_be_trained_is_told_as_before() -> None:
    alive = view(trained(next="account_1"))
    told, head = draw(alive, MACHINE), document(Seen(alive, finish=Range(NOW, NOW + 1, NOW + 2)))["header"]
    assert "10 h 38 min" in told and "10 h 46 min" in told and "Lease: free" in told
    assert head["training_left_s"] and head["finish"] and head["next"] == "account_1"


@pytest.mark.parametrize(
    ("phase", "code", "helps"),
    [("halted", 65, "unhalt"), ("archived", 77, "runs unarchive"), ("deleted", 77, "Choose another run name")],
)
def test_doctor_says_that_nobody_trains_the_run_and_what_helps(phase: str, code: int, helps: str) -> None:
    """All was well with an archived run, and a session was refused."""
    found = [one for one in checkup.run(view(trained(**({"halted": "x"} | STOPS[phase]))), ()) if one.code]
    assert found[0].code == code and helps in found[0].advice
    assert len(found) == (2 if phase == "archived" else 1), "and one that was halted before still is, once it is back"


def unsent(lab: Lab) -> LocalFolder:
    """The first session of the run, which could commit nothing."""
    session = lab.session(target_steps=40, every_steps=1000, patience_s=20.0)
    lab.world.at(lab.world.now + 3, lambda: setattr(session.store, "fail", down))
    assert lab.run(session).unsent is not None
    return session.ctx.local_folder


@pytest.mark.parametrize(
    ("changes", "text", "advice"),
    [
        ({}, "not committed", "`python rotate_accounts.py push"),
        ({"archived": NOW}, "not committed", "once the run may train again: `"),
        ({"halted": "x"}, "not committed", "once the run may train again: `"),
        ({"archived": NOW, "deleted": NOW}, "its run was deleted", "fork --run chain --to chain_2 --from-step 40"),
    ],
    ids=["alive", "archived", "halted", "deleted"],
)
def test_no_push_is_advised_that_would_be_refused(lab: Lab, changes: dict[str, float], text: str, advice: str) -> None:
    local_folder = unsent(lab)
    state: RunState = lab.state().model_copy(update=changes)
    found = next(checkup.unsent(local_folder, state))
    assert text in found.text and advice in found.advice, found


class Full(Wrapper):
    """Not one byte more fits, not even the file that shows the store's clock."""

    def put(self, name: str, data: bytes | Path) -> Ref:
        raise QuotaExceeded(f"cannot write {name}: No space left on device. Free some space there and run again.")

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self.put(name, data)

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        return self.put(name, data)

    def now(self) -> float:
        self.put("a probe", b"")
        return 0.0


@pytest.fixture
def full(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A run whose disk is full since."""
    desk.train(3)
    wrap_stores(monkeypatch, Full)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**9, used=10**9, free=0))
    return desk


def test_doctor_knows_how_much_is_free_on_a_full_disk_and_what_helps(full: Desk) -> None:
    """It reported that this is unknown, and that no session has committed."""
    told = full("doctor", "--run", "r", code=69)
    assert "free: 0 kB" in told.out and "full: 0:" in told.out
    assert told.advised("gc") == [["gc", "--run", "r", "--full", "--dry-run"]]
    assert told.advised("runs") == [["runs", "list"]]
    (store,) = full("doctor", "--run", "r", "--json", code=69).json["stores"]
    assert (store["free_bytes"], store["sessions_until_full"]) == (0, 0)


def test_what_makes_room_works_where_there_is_none_and_is_named(full: Desk) -> None:
    """`gc` asks the store's clock, for which a full disk has no room; `--full` does without."""
    leftover = next((full.folder / "relay_store" / "checkpoints").glob("*/r")) / "step_9.e0" / "state.json"
    leftover.parent.mkdir()
    leftover.write_bytes(b"x")
    refused = full("gc", "--run", "r", code=69)
    assert refused.advised("gc") == [["gc", "--run", "r", "--full"]] and leftover.exists()
    full("gc", "--run", "r", "--full")
    assert not leftover.exists()


def test_why_nobody_knows_how_many_sessions_fit_is_not_invented(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.train(3)

    class Refusing(Wrapper):
        def put(self, name: str, data: bytes | Path) -> Ref:
            raise Denied(f"cannot write {name}")

    wrap_stores(monkeypatch, Refusing)
    assert "no session has committed" not in desk("doctor", "--run", "r", code=69).out


def test_what_a_session_left_behind_is_told_as_the_run_stands_now(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It named a recipient for a command that is refused, and reported that a deleted report was never left."""
    monkeypatch.setattr("relay.core.ledger.atrest.WAIT_S", 0.0)
    desk.train(3)
    real = inspecting.read_report

    def proposing(*words: Any) -> tuple[SessionReport | None, str]:
        report, why = real(*words)
        return report and report.model_copy(update={"next": "account_1"}), why

    monkeypatch.setattr(inspecting, "read_report", proposing)
    last = ("report", "--run", "r", "--session", "last")
    assert desk(*last, "--json").json["command"]
    desk("runs", "archive", "r")
    assert desk(*last, "--json").json["command"] is None and "workflow.sh" not in desk(*last).out
    desk("runs", "delete", "r", "--yes-delete", "r")
    document = desk(*last, "--json").json
    assert document["report"] is None and "deleted" in document["why"]


@pytest.mark.parametrize("reason", sorted(GONE))
def test_a_session_that_died_is_told_and_reckoned_so_however_it_was_found(reason: str) -> None:
    """One found by its own machine's lock counted as ended well, and its speed as measured."""
    dead = Link(epoch=1, account="a", from_step=0, to_step=10, commits=1, started=NOW - 900, seconds=600.0, end=reason)
    assert kind_of_end(dead) == "killed"
    past = history([dead], NOW)
    assert (past.died, past.lived, past.of_account("a")) == (1, 0, ())


def test_one_death_is_one_session_and_putting_a_run_away_needs_no_verify() -> None:
    found = [one.text for one in checkup.run(view(trained(deaths=1)), ())]
    assert any(text.startswith("1 session ") for text in found)
    noted = [
        Incident(at=NOW, epoch=1, step=1, account=None, cause=cause, text="x") for cause in ("archived", "unarchived")
    ]
    rows = incident_rows(view(trained(incidents=tuple(noted))), [])
    assert all(row["todo"].startswith("Nothing") for row in rows)


def test_who_asks_a_silent_session_to_stop_learns_that_it_may_be_gone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was reported as asked, and a person waited for an answer that could not come."""
    with monkeypatch.context() as killed:
        killed.setattr("relay.core.session.session.release", lambda parts, reason: False)
        desk.train(3)
    assert "account_1 (epoch 1)" in desk("stop", "--run", "r").out

    class Later(Wrapper):
        def now(self) -> float:
            return super().now() + 7200.0

    wrap_stores(monkeypatch, Later)
    assert "2 h 00 min" in desk("stop", "--run", "r").out


def test_whoever_invites_to_a_halted_run_is_told_what_has_to_be_mended_first(desk: Desk) -> None:
    desk.plugin.made = {"nan_at": 1}
    for _ in range(2):
        desk.train(3, code=65)
    asked = desk("invite", "--run", "r")
    assert "halted" in asked.err and "halted" not in asked.out


@pytest.mark.slow
def test_steps_that_were_trained_again_are_not_called_those_of_other_runs(desk: Desk) -> None:
    """After a rewind of its only run a report spoke of all runs of the store; next to a fork's parent it did not."""
    desk.train(10)
    desk.train(20)
    head = next((desk.folder / "relay_store" / "checkpoints").glob("*/r/step_20.e2")) / "state.json"
    head.chmod(0o600)
    head.write_bytes(b"rot")
    shutil.rmtree(desk.folder / "sync")
    desk.train(30)
    alone = [line for line in desk("report", "--run", "r").out.splitlines() if "Accounts: " in line]
    desk("fork", "--run", "r", "--to", "branch")
    desk.train(35, run="branch")
    both = [line for line in desk("report", "--run", "branch").out.splitlines() if "Accounts: " in line]
    assert len(alone) == len(both) == 1 and alone != both
