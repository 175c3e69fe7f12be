"""A store that holds less than a machine has read of it: every command reports it, and a person must choose."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from storage.base import open_store
from tests.app.cli import Desk
from tests.app.repairs import another_machine, told_command
from tests.core.toy import hash_of, state_at
from tests.damage.healed import NAMES, PLAIN, name, raw


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A desk whose store was replaced by a copy of two sessions before."""
    desk = Desk(tmp_path_factory.mktemp("older") / "desk")
    desk.train(20, *PLAIN)
    store = desk.folder / "relay_store"
    shutil.copytree(store, desk.folder / "backup")
    for target in (30, 40):
        desk.train(target, *PLAIN)
    shutil.copytree(store, desk.folder / "newer")
    shutil.rmtree(store)
    shutil.copytree(desk.folder / "backup", store)
    return desk.folder


@pytest.fixture
def desk(older: Path, tmp_path: Path) -> Desk:
    return Desk(Path(shutil.copytree(older, tmp_path / "desk")))


def content(desk: Desk) -> dict[Path, bytes]:
    root = desk.folder / "relay_store"
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and "selftest" not in path.parts}


def test_it_is_shown_and_nothing_is_changed(desk: Desk) -> None:
    before = content(desk)
    desk.train(50, code=65)
    found = desk("repair", "--run", "r", "--json", code=65).json
    assert found["choices"] == ["store"] and found["open"]
    assert (found["machine"]["step"], found["store"]["step"], found["store"]["loads"]) == (40, 20, 20)
    assert found["local"] == [{"step": 40, "epoch": 3}]
    shown = desk("repair", "--run", "r", code=65)
    assert "step 40" in shown.out and "step 20" in shown.out
    assert shown.advised("repair") == [["repair", "--run", "r", "--choose", "store"]]
    assert content(desk) == before


def test_the_newer_files_put_back_end_it_without_a_loss(desk: Desk) -> None:
    """The first advice of `repair`."""
    shutil.copytree(desk.folder / "newer", desk.folder / "relay_store", dirs_exist_ok=True)
    assert not desk("repair", "--run", "r", "--json", code=0).json["open"]
    desk.train(50)
    assert desk.status()["head"]["state_hash"] == hash_of(50, state_at(50))


def test_a_choice_goes_on_from_the_store_and_keeps_this_machines_checkpoint(desk: Desk) -> None:
    before = content(desk)
    done = desk("repair", "--run", "r", "--choose", "store").out
    assert "step 20" in done and "step 40" in done
    assert all(content(desk)[path] == data for path, data in before.items()), "appended, nothing else"
    store = open_store((desk.folder / "relay_store").as_uri())
    newest = json.loads(raw(store, len(list(store.list(NAMES.ledger))) - 1))["body"]
    assert newest["kind"] == "choose" and newest["change"]["others"][0]["step"] == 40
    assert str(newest["change"]["others"][0]["seq"]) in newest["change"]["why"]
    assert not desk("repair", "--run", "r", "--json", code=0).json["open"]
    assert desk("verify", "--run", "r", "--json").json["ok"]
    for target in (30, 40, 50):
        desk.train(target)
    status = desk.status()
    assert status["head"]["state_hash"] == hash_of(50, state_at(50))
    assert min(link["epoch"] for link in status["links"][1:]) > 3, "no epoch that this machine knows is used again"
    (told,) = [
        row["advice"]
        for row in desk("doctor", "--run", "r", "--json").json["findings"]
        if row["subject"] == "sync" and "step 40" in row["text"]
    ]
    assert desk(*told_command(told, "fork"), "--json").json["step"] == 40
    assert desk.status("r_2")["head"]["state_hash"] == hash_of(40, state_at(40))


def test_another_machine_that_knew_more_decides_for_itself(desk: Desk) -> None:
    """Its mark proves the loss to it too: it is never passed over in silence."""
    other = another_machine(desk)
    shutil.copytree(desk.folder / "sync", other.folder / "sync")
    desk("repair", "--run", "r", "--choose", "store")
    desk.train(25)
    other.train(30, code=65)
    found = other("repair", "--run", "r", "--json", code=65).json
    assert found["machine"]["step"] == 40 and found["store"]["step"] == 25
    other("repair", "--run", "r", "--choose", "store")
    other.train(30)
    assert other.status()["head"]["state_hash"] == hash_of(30, state_at(30))


def test_a_machine_that_knew_no_more_trains_without_a_word(desk: Desk) -> None:
    other = another_machine(desk)
    other.train(30)
    assert other.status()["head"]["state_hash"] == hash_of(30, state_at(30))


def test_a_stored_file_of_a_later_epoch_is_kept(desk: Desk) -> None:
    """Only the ledger was rolled back: the checkpoints of its lost entries are still there."""
    for file in (desk.folder / "newer" / "checkpoints").rglob("*"):
        target = desk.folder / "relay_store" / file.relative_to(desk.folder / "newer")
        if file.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    fresh = another_machine(desk)
    fresh.train(50, code=65)
    found = fresh("repair", "--run", "r", "--json", code=65).json
    assert found["file"] and found["machine"] is None and found["choices"] == ["store"]
    fresh("repair", "--run", "r", "--choose", "store")
    fresh("gc", "--run", "r", "--full")
    fresh.train(25)
    fresh("gc", "--run", "r", "--full")
    assert fresh("fork", "--run", "r", "--to", "b", "--from-step", "40", "--json").json["step"] == 40
    fresh.train(45, run="b")
    assert fresh.status("b")["head"]["state_hash"] == hash_of(45, state_at(45))
    assert fresh("verify", "--run", "r", "--json").json["ok"]


def test_a_file_of_an_epoch_that_never_can_have_been_is_named(desk: Desk) -> None:
    fresh = another_machine(desk)
    stray = desk.folder / "relay_store" / f"{NAMES.checkpoints}step_1.e9999999999999999" / "state.json"
    stray.parent.mkdir(parents=True)
    stray.write_text("{}")
    refused = fresh("repair", "--run", "r", "--choose", "store", code=65).err
    assert f"{NAMES.checkpoints}step_1.e9999999999999999/state.json" in refused
    stray.unlink()
    fresh.train(30)


def test_verify_says_so_as_doctor_does(desk: Desk) -> None:
    """By this machine's checkpoint, and by its mark alone; another machine knows no better."""
    for forgets in (False, True):
        if forgets:
            for description in (desk.folder / "sync").rglob("step_40.e3.json"):
                description.unlink()
        found = desk("verify", "--run", "r", "--json", code=65).json
        (told,) = [one for one in found["incidents"] if "rolled back" in one["text"]]
        assert "step 40" in told["text"] and "step 20" in told["text"]
        assert told_command(told["advice"], "repair") == ["repair", "--run", "r"]
    assert another_machine(desk)("verify", "--run", "r", "--json").json["ok"]
    desk("repair", "--run", "r", "--choose", "store")
    assert desk("verify", "--run", "r", "--json").json["ok"], "a person has decided"


def test_a_hint_of_a_slot_that_is_gone_ends_with_the_choice(desk: Desk) -> None:
    fresh = another_machine(desk)
    slots = len(list((desk.folder / "relay_store" / NAMES.ledger).glob("*.json")))
    hint = {"seq": slots + 3, "ref": name(slots + 3), "digest": "0" * 64}
    (desk.folder / "relay_store" / (NAMES.ledger.removesuffix("/") + ".hint")).write_text(json.dumps(hint))
    fresh.train(30, code=65)
    found = fresh("repair", "--run", "r", "--json", code=65).json
    assert found["hint"] == slots + 3 and found["choices"] == ["store"]
    fresh("repair", "--run", "r", "--choose", "store")
    fresh.train(30)
    assert fresh.status()["head"]["state_hash"] == hash_of(30, state_at(30))
    assert fresh("verify", "--run", "r", "--json").json["ok"]


def refusals(desk: Desk, code: int | None = None) -> list[str]:
    """Doctor's finding on a ledger that a person must repair."""
    found = desk("doctor", "--run", "r", "--json", code=code).json["findings"]
    return [row["text"] for row in found if not row["ok"] and " repair " in row["text"]]


def test_doctor_says_that_a_session_would_be_refused(desk: Desk) -> None:
    (told,) = refusals(desk, code=65)
    assert "step 40" in told and "step 20" in told
    shutil.rmtree(desk.folder / "sync" / "sudoku_pretrain_multiaccount" / "r" / "step_40.e3")
    for description in (desk.folder / "sync").rglob("step_40.e3.json"):
        description.unlink()
    (told,) = refusals(desk, code=65)
    assert told_command(told, "repair") == ["repair", "--run", "r"], "by the mark alone"
    assert not refusals(another_machine(desk))


def test_an_unreadable_slot_is_no_proof_of_an_older_store(tmp_path: Path) -> None:
    """This machine has read the newest entry, which is damaged now: its file may be put back, or passed over."""
    desk = Desk(tmp_path)
    desk.train(20, *PLAIN)
    newest = max((desk.folder / "relay_store" / NAMES.ledger).glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:300])
    assert not desk("repair", "--run", "r", "--json", code=0).json["open"]
    assert not refusals(desk)


@pytest.mark.parametrize("words", [("gc", "--run", "r"), ("runs", "archive", "r")], ids=lambda words: words[-2])
def test_nobody_writes_to_it_from_a_machine_that_knows_better(desk: Desk, words: tuple[str, ...]) -> None:
    before = content(desk)
    refused = desk(*words, code=65)
    assert content(desk) == before
    assert not desk("repair", *told_command(refused.err, "repair")[1:], "--json", code=65).json["chosen"]


def test_a_choice_made_again_writes_nothing(desk: Desk) -> None:
    desk("repair", "--run", "r", "--choose", "store")
    before = content(desk)
    again = desk("repair", "--run", "r", "--choose", "store")
    assert again.code == 0 and content(desk) == before
