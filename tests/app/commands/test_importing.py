"""A run that begins from existing weights reports its origin, and trains on from exactly those."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.core.events import Continuing
from relay.core.ledger.frozen import WEIGHTS_ONLY
from relay.core.runs.fork import ForkTaken
from relay.core.runs.opening import NameTaken, SimilarName
from relay.people.admission import Unconfirmed
from tests.app.cli import Desk
from tests.core.toy import first, hash_of, successor


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path / "desk")
    (made.folder / "step_5000").write_bytes(b"seven b")
    return made


def test_a_run_begins_from_weights_labelled_and_trains_on_from_them(desk: Desk) -> None:
    begun = desk("import", "step_5000", "--run", "r", "--json").json
    assert (begun["schema"], begun["run"], begun["exact"], begun["notes"]) == ("relay.import/1", "r", False, ["noted"])
    status = desk.status()
    assert (status["step"], status["head"]["step"]) == (0, 0)
    origin = desk.train(6).event(Continuing).origin
    assert origin and (origin.project, origin.run) == (WEIGHTS_ONLY, "step_5000")
    values = (7, *first(1)[1:])
    for step in range(6):
        values = successor(values, step)
    assert desk.held() == hash_of(6, values)


def test_people_read_what_it_is_and_how_to_go_on(desk: Desk) -> None:
    said = desk("import", "step_5000", "--run", "r", "seed=3")
    assert "noted" in said.out and "run --run r seed=3" in said.out


def test_a_name_that_is_taken_is_refused_and_nothing_changes(desk: Desk) -> None:
    desk.train(6)
    before = desk.status()["head"]
    taken = desk("import", "step_5000", "--run", "r", code=78).raised(NameTaken)
    assert (taken.run, taken.by) == ("r", "import")
    assert desk.status()["head"] == before


def test_another_file_to_the_same_name_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """One import broke off before the run began; only the same file may take its place."""
    with monkeypatch.context() as broken:
        broken.setattr("relay.app.commands.sessions.importing.begin_run", None)
        desk("import", "step_5000", "--run", "r", code=None)
    (desk.folder / "other").write_bytes(b"more than seven")
    assert desk("import", "other", "--run", "r", code=78).raised(ForkTaken).run == "r"
    desk("import", "step_5000", "--run", "r")


def test_a_file_that_is_not_there_begins_nothing(desk: Desk) -> None:
    assert "none" in desk("import", "none", "--run", "r", code=65).err
    assert desk("runs", "list", "--json").json["runs"] == []
    desk("import", "step_5000", "--run", "r")


def test_a_session_refused_begins_no_run_from_weights(desk: Desk) -> None:
    """It sent them, began the run and was refused then (77); nor was a name one edit away refused (P3)."""
    desk("register", "account_1", "Ann", "--provider", "kaggle", "--owner", "ann")
    words = ("run", "--account", "account_1", "--target-steps", "6", "load_checkpoint=step_5000")
    assert desk(*words, "--run", "chain", code=77).raised(Unconfirmed).account == "account_1"
    assert not desk("runs", "list", "--json").json["runs"] and not list(desk.folder.rglob("step_0.e0"))
    told = desk(*words, "--run", "chain", "--coauthor").err
    assert "NEW run chain" in told
    assert desk(*words, "--run", "chains", "--coauthor", code=78).raised(SimilarName).other == "chain"
    assert len(list(desk.folder.rglob("checkpoints/*/*"))) == 1
    desk(*words, "--run", "chains", "--coauthor", "--new")


def test_weights_are_evaluated_without_a_run(desk: Desk) -> None:
    found = desk("evaluate", "--weights", "step_5000", "--rows", "4", "--json").json
    assert (found["run"], found["step"], found["which"]) == (None, None, "weights only")
    assert not list(desk.folder.glob("relay_store*"))


def test_the_form_of_an_export_is_handed_on(desk: Desk) -> None:
    desk.train(6)
    assert "--format" in desk("export", "--run", "r", "--format", "pickle", code=2).err
    assert desk("export", "--run", "r", "--format", "reference", "--json").json["exact"] is False
