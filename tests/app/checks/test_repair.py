"""verify and doctor name the fault, its owner, its meaning and the remedy; and the remedy works."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from relay.app.checks import doctor
from relay.core.checkpoint.restore import DamagedCheckpoint
from relay.core.ledger.ledger import LedgerOfAnotherRun
from tests.app.cli import Desk
from tests.app.repairs import (
    another_machine,
    examined,
    leave_unsent,
    live,
    slot,
    spoil,
    stored,
    tail,
    told_command,
    verified,
)
from tests.core.toy import FILES, hash_of, state_at


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return live(tmp_path_factory.mktemp("lived"))


@pytest.fixture
def desk(lived: Path, tmp_path: Path) -> Desk:
    return Desk(Path(shutil.copytree(lived, tmp_path / "desk")))


def test_a_damaged_newest_checkpoint_is_explained_and_the_advice_mends_the_run(desk: Desk) -> None:
    spoil(stored(desk, "step_30.e3/state.json"))
    (bad,) = [row for row in verified(desk)["checkpoints"] if not row["ok"]]
    assert (bad["step"], bad["epoch"], bad["account"]) == (30, 3, "account_2")
    assert [name.rpartition("/")[2] for name in bad["files"]] == ["state.json"]
    assert "step 20" in bad["meaning"] and "10 steps" in bad["meaning"]
    told = desk("verify", "--run", "r", code=65).out
    assert all(fact in told for fact in ("DAMAGED", "step 30 ", "epoch 3", "account_2", "step_30.e3/state.json"))
    other = another_machine(desk)
    other(*told_command(told, "run"), "--account", "account_1")
    assert desk.status()["step"] == 31 and desk.held() == hash_of(31, state_at(31))
    after = verified(desk, code=0)
    assert [(row["step"], row["known"]) for row in after["checkpoints"] if not row["ok"]] == [(30, True)]
    assert desk("verify", "--run", "r", "--json").json["ok"], "the damage is known"


def test_every_wrong_file_is_named(desk: Desk) -> None:
    stored(desk, "step_20.e2/state.json").unlink()
    ema = stored(desk, "step_20.e2/ema.json")
    ema.write_bytes(ema.read_bytes()[:-3])
    (bad,) = [row for row in verified(desk)["checkpoints"] if not row["ok"]]
    assert sorted(name.rpartition("/")[2] for name in bad["files"]) == sorted(FILES)
    assert "is missing" in bad["reason"] and "bytes, not" in bad["reason"]
    assert bad["advice"] == "Nothing." and bad["meaning"]
    (told,) = examined(desk, 0, "checkpoint")
    assert all(fact in told["text"] for fact in ("step 20 ", "epoch 2", "account_1"))


def test_no_checkpoint_left_says_which_files_to_bring_back(desk: Desk) -> None:
    saved = {}
    for key in ("step_10.e1", "step_20.e2", "step_30.e3"):
        path = stored(desk, f"{key}/state.json")
        saved[path] = path.read_bytes()
        path.unlink()
    assert all("step 0" in row["meaning"] for row in verified(desk)["checkpoints"])
    told = examined(desk, 65, "checkpoint")
    assert len(told) == 3 and all("backup" in row["advice"] for row in told)
    for path, data in saved.items():
        path.write_bytes(data)
    assert verified(desk, code=0)["ok"] and not examined(desk, 0, "checkpoint")


@pytest.mark.parametrize("lost", [[2], [0], [3, 5], [0, 1, 2]])
def test_lost_entries_are_named_by_slot_and_the_restored_file_mends_the_run(desk: Desk, lost: list[int]) -> None:
    saved = {slot(desk, number): slot(desk, number).read_bytes() for number in lost}
    for path in saved:
        path.unlink()
    found = verified(desk)
    assert [row["slot"] for row in found["incidents"]] == lost
    assert [row["file"].rpartition("/")[2] for row in found["incidents"]] == [f"{number:020d}.json" for number in lost]
    assert [row["ok"] for row in found["checkpoints"]] == [True] * 3, "what is intact is told all the same"
    told = examined(desk, 65, "ledger")
    assert all("backup" in row["advice"] for row in told)
    assert any("lifecycle" in row["text"] for row in told) == (0 in lost)
    forks = ["fork" in row["advice"] for row in [*told, *found["incidents"]]]
    assert forks == [0 not in lost] * len(forks), "without the settings in slot 0 there is no fork"
    for path, data in saved.items():
        path.write_bytes(data)
    assert verified(desk, code=0)["ok"]
    desk.train(33)


@pytest.mark.parametrize("newest_too", [False, True], ids=["all intact", "newest damaged too"])
def test_the_fork_that_a_lost_entry_advises_goes_on_bit_for_bit(desk: Desk, newest_too: bool) -> None:
    slot(desk, 4).unlink()
    if newest_too:
        spoil(stored(desk, "step_30.e3/state.json"))
    before = {path: path.read_bytes() for path in (desk.folder / "relay_store").rglob("*") if path.is_file()}
    assert examined(desk, 65, "ledger")
    told = verified(desk)["incidents"][-1]
    made = desk(*told_command(told["advice"], "fork"), "--json")
    assert made.json["step"] == (20 if newest_too else 30)
    assert "slot 4" in made.err
    desk.train(35, run="r_2")
    assert desk.held("r_2") == hash_of(35, state_at(35))
    assert desk("verify", "--run", "r_2", "--json").json["ok"]
    after = {path: path.read_bytes() for path in before if path.exists()}
    changed = {path for path in before if before[path] != after.get(path)}
    assert not [path for path in changed if "/r/" in str(path)], "the damaged run is left as it is"


def test_a_fork_from_a_damaged_ledger_still_refuses_what_is_not_there(desk: Desk) -> None:
    slot(desk, 4).unlink()
    refused = desk("fork", "--run", "r", "--to", "b", "--from-step", "25", code=65)
    assert "10, 20, 30" in refused.err
    spoil(stored(desk, "step_20.e2/ema.json"))
    refused = desk("fork", "--run", "r", "--to", "b", "--from-step", "20", code=65)
    damaged = refused.raised(DamagedCheckpoint)
    assert (damaged.step, damaged.run, [*damaged.others]) == (20, "r", [10, 30])
    slot(desk, 0).unlink()
    assert f"{0:020d}.json" in desk("fork", "--run", "r", "--to", "b", "--from-step", "10", code=65).err
    desk("status", "--run", "b", code=78)


def test_a_ledger_of_another_run_is_not_forked_from(desk: Desk) -> None:
    shutil.copytree(stored(desk, "r/ledger"), stored(desk, "r/ledger").parent.parent / "copy" / "ledger")
    refused = desk("fork", "--run", "copy", "--to", "b", code=65).raised(LedgerOfAnotherRun)
    assert refused.run == "r" and refused.log.endswith("/copy/ledger/")


def test_a_hint_beyond_the_tail_is_told_with_its_slot(desk: Desk) -> None:
    number = tail(desk) + 1
    ref = str(slot(desk, number).relative_to(desk.folder / "relay_store"))
    hint = {"seq": number, "ref": ref, "digest": "0" * 64}
    (stored(desk, "r/ledger").parent / "ledger.hint").write_text(json.dumps(hint))
    (told,) = examined(desk, 65, "ledger")
    assert str(number) in told["text"] and "backup" in told["advice"]
    assert any(f"{number:020d}.json" in row["text"] for row in verified(desk)["incidents"])


def test_a_checkpoint_of_an_unknown_epoch_is_told_as_a_lost_entry(desk: Desk) -> None:
    later = stored(desk, "step_30.e3").parent / "step_40.e9"
    later.mkdir()
    (later / "state.json").write_text("{}")
    (told,) = examined(desk, 65, "ledger")
    assert "epoch 9" in told["text"]
    assert not verified(desk)["ok"]


def test_a_strangers_entry_changes_nothing_and_is_known_after_the_next_session(desk: Desk) -> None:
    number = tail(desk) + 1
    slot(desk, number).write_text("hello")
    (told,) = [row for row in verified(desk)["incidents"] if row["slot"] == number]
    assert "changes nothing" in told["meaning"] and "next session" in told["meaning"]
    assert told["by"] and "account_" not in told["by"]
    (seen,) = examined(desk, 0, "ledger")
    assert f"slot {number}" in seen["text"] and "changes nothing" in seen["text"]
    desk.train(35, "lease.ttl_s=1")
    (known,) = [row for row in verified(desk, code=0)["incidents"] if row["slot"] == number]
    assert "passed over" in known["meaning"]


def test_an_entry_that_rotted_costs_nothing_and_names_whose_lease_it_was(desk: Desk) -> None:
    commit = next(number for number in range(tail(desk)) if b'"kind":"commit"' in slot(desk, number).read_bytes())
    spoil(slot(desk, commit))
    (told,) = [row for row in verified(desk)["incidents"] if row["slot"] == commit]
    assert "account_1 (epoch 1)" in told["by"]
    desk.train(35)
    assert desk.held() == hash_of(35, state_at(35))


def test_what_could_not_be_sent_is_told_and_push_sends_it(desk: Desk) -> None:
    leave_unsent(desk, 35)
    (told,) = examined(desk, 0, "sync")
    assert "step 35" in told["text"] and "not committed" in told["text"]
    desk(*told_command(told["advice"], "push"))
    assert desk.held() == hash_of(35, state_at(35))


def test_what_the_run_went_on_without_can_be_forked_from_this_machine_only(desk: Desk) -> None:
    leave_unsent(desk, 35)
    other = another_machine(desk)
    other.train(34)
    (told,) = examined(desk, 0, "sync")
    assert "step 35" in told["text"]
    words = told_command(told["advice"], "fork")
    assert "20, 30, 34" in other(*words, code=65).err
    assert "35" in desk(*words[:-1], "33", code=65).err, "this machine alone has it"
    assert desk(*words, "--json").json["step"] == 35
    assert desk.held("r_2") == hash_of(35, state_at(35))
    another_machine(desk).train(40, run="r_2")
    assert desk.held("r_2") == hash_of(40, state_at(40))


def test_a_halted_run_is_told_with_both_ways_out_and_each_works(desk: Desk) -> None:
    desk.plugin.made = {"nan_at": 32}
    for _ in range(2):
        desk.train(40, code=65)
    desk.plugin.made = {}
    (told,) = examined(desk, 65, "run")
    desk(*told_command(told["advice"], "fork"))
    desk.train(33, run="r_2")
    desk(*told_command(told["advice"], "unhalt"))
    desk.train(33)
    assert desk.status()["head"] | {"committed_at": ""} != {} and desk.status()["step"] == 33
    assert desk.held("r_2") == desk.held()


def test_a_disk_with_too_little_room_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 5, 5))
    told = examined(desk, 0, "disk")
    assert ["sync/" in row["text"] for row in told] == [True, False]
    assert all(row["advice"] for row in told)


def test_looking_repairs_and_changes_nothing_of_the_run(desk: Desk) -> None:
    slot(desk, 2).unlink()
    spoil(stored(desk, "step_30.e3/state.json"))
    runs = [desk.folder / "relay_store" / name for name in ("runs", "checkpoints", "registry")]
    before = {path: path.read_bytes() for root in runs for path in root.rglob("*") if path.is_file()}
    for words in (("verify",), ("doctor",), ("gc", "--dry-run"), ("gc", "--full")):
        desk(*words, "--run", "r", code=65)
    assert {path: path.read_bytes() for root in runs for path in root.rglob("*") if path.is_file()} == before
