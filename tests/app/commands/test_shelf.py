"""`archive`, `unarchive` and `delete` as they are typed: their output, refusals, completion and remains."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.core.ledger.atrest import RunDeleted
from relay.core.runs.archive import NotArchived, TooEarly
from storage.base import Denied, Ref
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores

pytestmark = pytest.mark.slow

# As people type it.


@pytest.fixture
def trained(desk: Desk) -> Desk:
    desk.train(3)
    desk.train(6)
    desk.train(4, run="other")
    return desk


def files(desk: Desk, run: str = "r") -> list[Path]:
    root = next((desk.folder / "relay_store" / "checkpoints").glob("*")) / run
    return sorted(path for path in root.rglob("*") if path.is_file())


@pytest.fixture
def a_day_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores show the machine's time here, so the day is as good as over at once."""
    monkeypatch.setattr("relay.core.ledger.atrest.WAIT_S", 0.0)


def test_an_archived_run_trains_no_more_but_can_be_read_and_forked(trained: Desk) -> None:
    told = trained("runs", "archive", "r", "--why", "done, key=hunter2hunter2", HF_TOKEN="hunter2hunter2").out
    assert not any(b"hunter2" in path.read_bytes() for path in trained.folder.rglob("*") if path.is_file())
    assert "runs unarchive r" in told
    for words in (("run", "--run", "r", "--target-steps", "20"), ("push", "--run", "r"), ("resume", "--run", "r"),
                  ("invite", "--run", "r")):  # fmt: skip
        refused = trained(*words, code=77)
        assert "archived" in refused.err and "runs unarchive r" in refused.err
    assert trained.status()["state"] == "archived"
    assert "ARCHIVED" in trained("report", "--run", "r").out
    assert "ARCHIVED" in trained("next", "--run", "r").out and "ARCHIVED" in trained("plan", "--run", "r").out
    trained("evaluate", "--run", "r")
    trained("fork", "--run", "r", "--to", "branch")
    trained("runs", "unarchive", "r")
    trained.train(8)
    assert trained.status()["step"] == 8


@pytest.mark.usefixtures("a_day_later")
def test_only_the_run_that_was_typed_is_meant_whatever_the_surroundings_name(trained: Desk) -> None:
    """A person's shell and config name the run they train; a command that deletes must not listen to them."""
    mine, other = files(trained), files(trained, "other")
    around = {"RUN_NAME": "other"}
    for wrong in ("", "R", "r ", "other", "r,other", "r/"):
        trained("runs", "delete", "r", "--yes-delete", wrong, code=2, **around)
    for wrong in ("R", "r/", "../r", "*", ""):
        assert trained("runs", "delete", wrong, "--yes-delete", wrong, code=78, **around).err
    assert "one character" in trained("run", "--run", "rr", "--target-steps", "3", code=78).err
    trained("dashboard", "--run", "r", "--push", "store", "--yes")
    (page,) = trained.folder.rglob("page.html")
    trained("runs", "archive", "r", **around)
    trained("runs", "delete", "r", "--yes-delete", "r", **around)
    assert mine and not files(trained) and not page.exists() and files(trained, "other") == other
    assert trained.status("other")["state"] != "archived"


def test_delete_first_shows_and_writes_nothing_and_wants_the_name_twice(trained: Desk) -> None:
    before = files(trained)
    shown = trained("runs", "delete", "r", "--json").json
    assert shown["schema"] == "relay.delete/1" and not shown["deleted"]
    assert shown["bytes"] == sum(path.stat().st_size for path in before)
    assert "runs archive r" in trained("runs", "delete", "r").out
    assert trained("runs", "delete", "r", "--yes-delete", "r", code=77).raised(NotArchived).run == "r"
    assert trained("runs", "delete", "r", "--yes-delete", "other", code=2).err
    trained("runs", "delete", code=2)
    trained("runs", "archive", "r")
    early = trained("runs", "delete", "r", "--yes-delete", "r", code=77).raised(TooEarly)
    assert early.run == "r" and early.archived_s < 3600
    assert files(trained) == before


@pytest.mark.usefixtures("a_day_later")
def test_a_deleted_run_leaves_its_ledger_and_its_name_never_begins_again(trained: Desk) -> None:
    other = files(trained, "other")
    trained("runs", "archive", "r")
    done = trained("runs", "delete", "r", "--yes-delete", "r", "--json").json
    assert done["deleted"] and not files(trained) and files(trained, "other") == other
    for words in (
        ("run", "--run", "r", "--new"),
        ("push", "--run", "r"),
        ("fork", "--run", "r", "--to", "branch"),
        ("evaluate", "--run", "r"),
        ("export", "--run", "r"),
        ("runs", "archive", "r"),
        ("runs", "unarchive", "r"),
        ("invite", "--run", "r"),
        ("resume", "--run", "r", "--anyway"),
    ):
        refused = trained(*words, code=77).raised(RunDeleted)
        assert (refused.run, refused.step) == ("r", 6), words
    assert "already" in trained("fork", "--run", "other", "--to", "r", code=78).err
    assert trained.status()["state"] == "deleted" and trained.status()["step"] == 6
    assert trained("verify", "--run", "r", "--json").json["ok"]
    trained("doctor", "--run", "r", code=77)
    assert trained("runs", "list", "--json").json["runs"][0]["checkpoint_bytes"] == 0
    trained.train(6, run="other")


@pytest.mark.usefixtures("a_day_later")
def test_i8_a_deletion_that_was_killed_goes_on_and_so_does_gc(trained: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    trained("runs", "archive", "r")

    class Stubborn(Wrapper):
        """Lets two files go, then none."""

        left = 2

        def delete(self, ref: Ref) -> None:
            if Stubborn.left == 0:
                raise Denied("no")
            Stubborn.left -= 1
            super().delete(ref)

    wrap_stores(monkeypatch, Stubborn)
    half = trained("runs", "delete", "r", "--yes-delete", "r", "--json").json
    assert half["deleted"] and len(half["files"]) == 2 and files(trained)
    manifests = {path.parent for path in files(trained) if path.name == "manifest.json"}
    assert {path.parent for path in files(trained)} == manifests, "a folder keeps its manifest to the last"
    late = files(trained)[0].parent.parent / "step_9.e2"
    late.mkdir()
    (late / "state.json").write_text("what a session uploads that does not know yet")
    Stubborn.left = 3
    trained("gc", "--run", "r")
    Stubborn.left = 1000
    trained("runs", "delete", "r", "--yes-delete", "r")
    assert not files(trained)
