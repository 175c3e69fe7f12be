"""`study` on a store in a folder, with sessions of the toy in this process in place of processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from relay.app.commands import studies
from relay.app.commands.command import Call
from relay.app.commands.common import App
from relay.app.models.trm import Trm
from relay.app.studies.studyfile import BadStudy, NoStudy
from relay.app.studies.working import Ended
from relay.core.errors import UsageError
from relay.core.events import LateResult
from relay.core.session.training import Trainer
from relay.core.workload import Borrower, NotReadable
from storage.base import Denied, Ref, Store
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores
from tests.app.studies.made import TOYS
from tests.core.toy import hash_of, state_at

GOOD = Path(__file__).parents[2] / "data" / "sudoku" / "good.csv"
SMALL = TOYS.replace("steps: 40", "steps: 4").replace("steps: 60", "steps: 6").replace("seeds: [1, 2]", "seeds: [1]")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Its sessions run in this process."""
    found = Desk(tmp_path / "desk")
    (found.folder / "toys.yaml").write_text(SMALL)

    def start(app: App, words: Sequence[str]) -> Ended:
        done = found(*words, "--json", code=None)
        return Ended(done.code, json.loads(done.out.splitlines()[-1]), 1.0)

    monkeypatch.setattr(studies, "start", start)
    return found


@pytest.mark.slow
def test_a_study_is_trained_by_two_people_and_reported(desk: Desk) -> None:
    """The settings in a configuration file do not change an experiment."""
    (desk.folder / "config_multi_account.yaml").write_text("batch_size: 32\n")
    assert desk("study", "check", "toys.yaml", "--json").json["runs"] == 4
    first = desk("study", "run", "toys.yaml", "base", "--account", "ana", "--json").json
    assert (first["schema"], first["exit_code"], [one["run"] for one in first["sessions"]]) == (
        "relay.study/1",
        0,
        ["base-s1"],
    )
    second = desk("study", "run", "toys.yaml", "--account", "ben", "--json").json
    assert [one["run"] for one in second["sessions"]] == ["big-s1", "longer-s1", "huge-s1"]
    assert {one["why"] for one in second["left"]} == {"done"} and second["exit_code"] == 0
    again = desk("study", "run", "toys.yaml", "--account", "ben", "--json").json
    assert (again["sessions"], again["exit_code"]) == ([], 0)
    status = desk("status", "--run", "longer-s1", "project=toys", "--json").json
    assert (status["step"], status["head"]["state_hash"]) == (6, hash_of(6, state_at(6, seed=1)))
    report = desk("study", "report", "toys.yaml", "--json").json
    rows = {row["experiment"]: row for row in report["rows"]}
    assert {name: row["mean"] for name, row in rows.items()} == {
        **dict.fromkeys(("base", "big", "huge", "twin", "raw"), 0.004),
        "longer": 0.006,
    }
    assert rows["big"]["runs"] == ["big-s1"] and not report["apart"] and not report["missing"]
    for form in ("csv", "markdown"):
        assert "0.004" in desk("study", "report", "toys.yaml", "sizes", "--format", form).out.replace("0.4%", "0.004")
    assert desk("study", "list", "toys.yaml", "--json").json["experiments"][0]["steps_left"] == 0
    drawn = desk("study", "plot", "toys.yaml", "--out", "s.svg", "--json").json["file"]
    assert drawn["bytes"] == (desk.folder / "s.svg").stat().st_size
    beside = desk("study", "compare", "toys.yaml", "big", "huge", "--export", "s.html", "--json").json
    assert [row["run"] for row in beside["runs"]] == ["big-s1", "huge-s1"] and beside["file"]["bytes"] > 50_000
    assert desk("study", "compare", "toys.yaml", "big", code=2).err
    assert desk("runs", "list", "--json").json["runs"][0]["project"] == "toys"


def test_a_run_at_its_target_without_its_test_is_named_offered_and_tested(desk: Desk) -> None:
    """As earlier versions left it: nothing in the store says that a test was due."""
    pinned = ("project=toys", "task=sudoku4", "seed=1")
    desk("run", "--run", "base-s1", "--target-steps", "4", *pinned)
    apart = desk("study", "report", "toys.yaml", "base", "raw", "--json").json["apart"]
    assert [one["run"] for one in apart] == ["base-s1"]
    assert all(word in apart[0]["why"] for word in ("test/exact_accuracy", "test_raw/exact_accuracy", "study run"))
    raw = desk("study", "report", "toys.yaml", "raw", "--json").json["apart"][0]["why"]
    assert "test_raw/exact_accuracy" in raw and "test/exact_accuracy" not in raw
    turn = desk("next", "--study", "toys.yaml", "base", "--json").json["turns"]
    assert [(one["run"], one["step"]) for one in turn] == [("base-s1", 4)]
    done = desk("study", "run", "toys.yaml", "base", "--account", "ben", "--json")
    (session,) = done.json["sessions"]
    assert (session["run"], session["from_step"], session["durable_step"], done.json["exit_code"]) == (
        *("base-s1", 4, 4),
        0,
    )
    assert [(e.step, e.reading) for e in done.events if isinstance(e, LateResult)] == [(4, "test"), (4, "test_raw")]
    assert not desk("study", "run", "toys.yaml", "base", "--json").json["sessions"]
    report = desk("study", "report", "toys.yaml", "base", "raw", "--json").json
    assert [row["mean"] for row in report["rows"]] == [0.004, 0.004] and not report["apart"]
    assert desk("status", "--run", "base-s1", "project=toys", "--json").json["untested"] == []


def test_a_session_that_leaves_its_test_says_so_and_so_do_status_report_and_next(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "--run", "r", "--target-steps", "3", "evaluation.test_rows=3", "evaluation.test_also=recursions=4")
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_evaluate_reading", lambda *_: False)
        left = desk(*words, "--json", code=75).json
    assert (left["durable_step"], left["untested"]) == (3, ["test", "test_r4"])
    status = desk("status", "--run", "r", "--json").json
    assert (status["state"], status["untested"]) == ("finished", ["test", "test_r4"])
    for command in ("status", "report", "next", "plan"):
        assert "test_r4" in desk(command, "--run", "r").out
    idle = desk("run", "--run", "r", "--target-steps", "3")
    assert "test_r4" in idle.out and desk("status", "--run", "r", "--json").json["epoch"] == 1
    assert desk(*words, "--json").json["untested"] == []
    assert desk("status", "--run", "r", "--json").json["untested"] == []
    for command in ("status", "report", "next", "plan"):
        assert "test_r4" not in desk(command, "--run", "r").out
    assert desk("status", "--run", "r", "--json").json["epoch"] == 2 and desk(*words).code == 0
    assert desk("status", "--run", "r", "--json").json["epoch"] == 2, "nothing to do"


def test_a_study_needs_no_store_to_be_listed_and_a_shorter_one_has_its_own_project(desk: Desk) -> None:
    listed = desk("study", "list", "toys.yaml", "--steps", "2", "--seeds", "3,4", "--json").json
    assert (listed["project"], listed["seeds"]) == ("toys-2", [3, 4])
    assert not (desk.folder / "relay_store").exists()
    done = desk("study", "run", "toys.yaml", "big", "--steps", "2", "--seeds", "3", "--json").json
    assert [one["run"] for one in done["sessions"]] == ["big-s3"] and done["sessions"][0]["durable_step"] == 2
    assert desk("status", "--run", "big-s3", "project=toys-2", "--json").json["step"] == 2
    turns = desk("next", "--study", "toys.yaml", "--json").json
    assert [(one["account"], one["run"]) for one in turns["turns"]] == [("account_1", "base-s1")]
    assert desk("next", "--study", "toys.yaml").advised("study", "run")


def test_runs_that_are_archived_or_halted_are_passed_by_and_named(desk: Desk) -> None:
    desk("init", "--run", "base-s1", "project=toys")
    desk("runs", "archive", "base-s1", RELAY_PROJECT="toys")
    desk.plugin.made = {"nan_at": 2}
    halted = desk("study", "run", "toys.yaml", "big", "--json", code=65)
    desk("study", "run", "toys.yaml", "big", "--json", code=65)
    desk.plugin.made = {}
    assert "big-s1" in halted.err
    done = desk("study", "run", "toys.yaml", "base", "--json").json
    assert [(one["run"], one["why"]) for one in done["left"]] == [("base-s1", "archived")]
    left = desk("study", "run", "toys.yaml", "big", "--json", code=65).json["left"]
    assert [(one["run"], one["why"]) for one in left] == [("big-s1", "halted")]


def test_a_file_that_changed_after_runs_began_is_found(desk: Desk) -> None:
    desk("study", "run", "toys.yaml", "big", "--seeds", "1")
    text = SMALL.replace("set: {batch_size: 8}", "set: {batch_size: 9}").replace("steps: 4\n", "steps: 8\n")
    (desk.folder / "toys.yaml").write_text(text.replace("steps: 6", "steps: 9"))
    checked = desk("study", "check", "toys.yaml", "--json", code=78).json
    assert [fault["line"] for fault in checked["faults"]] == [text.splitlines().index("  big:") + 1]
    assert "big-s1" in checked["faults"][0]["text"] and "batch_size" in checked["faults"][0]["text"]
    left = desk("study", "run", "toys.yaml", "big", "--json", code=78).json["left"]
    assert [(one["run"], one["why"], one["detail"]) for one in left] == [("big-s1", "changed", "batch_size")]
    apart = desk("study", "report", "toys.yaml", "big", "--json").json["apart"]
    assert [one["run"] for one in apart] == ["big-s1"] and "batch_size" in apart[0]["why"]


def test_every_fault_is_a_paragraph(desk: Desk) -> None:
    (desk.folder / "toys.yaml").write_text(SMALL.replace("control: big", "control: bigg").replace("T4: {b", "T4: {x"))
    shown = desk("study", "check", "toys.yaml", code=78)
    lines = shown.out.splitlines()
    assert len(lines) == 2 and all(line.startswith("toys.yaml:") for line in lines) and "base" in lines[0]
    assert len(desk("study", "list", "toys.yaml", code=78).raised(BadStudy).faults) == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "toys.yaml", "bgi"), 78),
        (("run", "toys.yaml", "batch_size=3"), 78),
        (("run", "nothing.yaml"), 78),
        (("report", "toys.yaml", "--metric", "losss"), 2),
        (("list", "toys.yaml", "--seeds", "one"), 2),
        (("plot", "toys.yaml"), 65),
        (("plot", "toys.yaml", "--out", "s.pdf"), 2),
    ],
)
def test_bad_input(desk: Desk, words: tuple[str, ...], code: int) -> None:
    done = desk("study", *words, code=code)
    kinds = {2: UsageError, 65: Exception, 78: Exception}
    assert isinstance(done.errors[-1], kinds[code])
    if words[1] == "nothing.yaml":
        done.raised(NoStudy)
    assert not (desk.folder / "relay_store" / "runs").exists()


def test_a_study_larger_than_the_store_s_list_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "MAX_RUNS", 3)
    faults = desk("study", "check", "toys.yaml", "--json", code=78).json["faults"]
    assert len(faults) == 1 and "storage.url" in faults[0]["text"]
    assert desk("study", "run", "toys.yaml", code=78).raised(BadStudy)
    desk("study", "check", "toys.yaml", "big", "huge")


class ReadOnly(Wrapper):
    """A store that refuses every new object."""

    def put(self, name: str, data: bytes | Path) -> Ref:
        raise Denied("403 on a write")

    put_if_absent = put_new = put


def test_a_store_that_is_read_only_ends_the_command_at_its_first_session(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrapped(store: Store) -> Store:
        return ReadOnly(store)

    wrap_stores(monkeypatch, wrapped)
    done = desk("study", "run", "toys.yaml", "--json", code=69).json
    assert len(done["sessions"]) == 1 and "403" in done["sessions"][0]["message"]


@pytest.mark.slow
def test_more_rows_than_a_file_has_are_a_fault(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", plugin=Trm())  # type: ignore[arg-type]
    rows = len(GOOD.read_text().splitlines()) - 1
    given = (f"data.train={GOOD}", f"data.test={GOOD}")
    found = desk("study", "check", "trm_scaling", "e1_1_baseline", *given, "--json", code=78).json
    assert "e1_1_baseline" in found["faults"][0]["text"] and f"{1000 - rows}" in found["faults"][0]["text"]
    desk("study", "check", "trm_scaling", "e1_1_baseline", *given, f"data.train_rows={rows}")
    assert "data.train_rows" in desk("study", "check", "trm_scaling", *given, "data.train_rows=40", code=78).err


def test_a_model_without_another_reading_is_refused_before_it_trains(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.core.workload.Readable", Borrower)
    refused = desk("run", "--run", "r", "evaluation.test_also=raw", "--target-steps", "3", code=78)
    assert refused.raised(NotReadable) and desk("status", "--run", "r", "--json").json["state"] == "new"
    desk("run", "--run", "r", "--target-steps", "3", "evaluation.test_rows=3")


def test_a_file_s_line_that_leads_to_data_counts_and_one_that_repeats_the_preset_does_not(desk: Desk) -> None:
    (desk.folder / "toys.yaml").write_text(SMALL.replace("test_rows: 10", "test_rows: 10\nset: {data.train: mine}"))
    for text, expected in (("generated", "mine"), ("theirs", "theirs")):
        (desk.folder / "config_multi_account.yaml").write_text(f"data:\n  train: {text}\n")
        call = Call(App(desk.plugin, cwd=desk.folder, root=desk.folder, environ={"HOME": str(desk.folder)}))
        point = studies.opened(call, "toys.yaml", []).design.points["big"]
        assert point.values["data.train"] == expected
