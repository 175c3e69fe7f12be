"""init, fork, stop and resume as people type them: each does one thing, reports it, and can be typed again."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from relay.app.commands.runs import forking
from relay.core.runs.opening import AnotherStore, NameTaken
from tests.app.cli import Desk
from tests.core.toy import hash_of, state_at

pytestmark = pytest.mark.slow


def test_init_begins_a_run_and_prints_the_address_the_others_need(desk: Desk, tmp_path: Path) -> None:
    begun = desk("init", "--run", "r", "--json").json
    assert (begun["schema"], begun["run"], begun["begun"]) == ("relay.init/1", "r", True)
    assert begun["address"] in desk("init", "--run", "r").out
    assert desk("init", "--run", "r", "--json").json | {"begun": True} == begun, "typed again it changes nothing"
    other = Desk(tmp_path / "other", {"RELAY_STORE": begun["address"]})
    assert other.status() == desk.status() and other.status()["state"] == "new"
    other.train(3)
    assert desk.status()["step"] == 3


def test_init_with_other_pinned_settings_is_refused(desk: Desk) -> None:
    desk("init", "--run", "r")
    refused = desk("init", "--run", "r", "seed=7", code=78)
    assert "seed" in refused.err and "fork" in refused.err


def test_an_address_of_another_store_is_refused(desk: Desk, tmp_path: Path) -> None:
    address = desk("init", "--run", "r", "--json").json["address"]
    wrong = address[:-1] + ("0" if address[-1] != "0" else "1")
    refused = Desk(tmp_path / "other", {"RELAY_STORE": wrong})("status", code=78).raised(AnotherStore)
    assert (refused.found, refused.expected) == (address[-32:], wrong[-32:])


def test_a_fork_may_change_what_the_run_had_pinned(desk: Desk) -> None:
    desk.train(3)
    desk.train(6)
    before = desk.status()
    made = desk("fork", "--run", "r", "--to", "branch", "batch_size=8", "--json").json
    assert made == {"schema": "relay.fork/1", "run": "branch", "from_run": "r", "step": 6}
    assert desk.held("branch") == before["head"]["state_hash"]
    desk.train(8, "batch_size=8", run="branch")
    assert desk.status() == before, "the parent knows nothing of it"
    assert desk("verify", "--run", "branch", "--json").json["ok"]


def test_a_fork_of_nothing_is_refused(desk: Desk) -> None:
    desk("init", "--run", "r")
    assert "Train first" in desk("fork", "--run", "r", "--to", "branch", code=65).err
    assert "nosuch" in desk("fork", "--run", "nosuch", "--to", "branch", code=78).err
    assert "--to" in desk("fork", "--run", "r", code=2).err


def test_stop_ends_the_session_that_trains_as_planned(desk: Desk) -> None:
    asked: list[object] = []

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if not asked:
            asked.append(desk("stop", "--run", "r", "--note", "lunch", "--json").json["asked"])

    desk.plugin.made = {"sleep": sleep, "step_s": 0.02}
    done = desk.train(100_000, "lease.ttl_s=2", "--json", code=75)
    assert asked == ["account_1"]
    assert done.json["exit_code"] == 75 and "(lunch)" in done.json["message"]
    step = desk.status()["step"]
    assert step == done.json["durable_step"] > 0
    assert desk.held() == hash_of(step, state_at(step))
    assert desk("stop", "--run", "r", "--json").json["asked"] is None


def test_two_stores_are_both_told_and_what_is_told_works_elsewhere(desk: Desk) -> None:
    stores = ("storage.ledger_url=ledger", "storage.checkpoint_url=checkpoints")
    told = desk("init", "--run", "r", *stores).out
    words = [word.partition("=") for word in shlex.split(told.partition(":\n")[2])]
    assert [name for name, _, _ in words] == ["RELAY_LEDGER_STORE", "RELAY_CHECKPOINT_STORE"]
    elsewhere = Desk(desk.folder.parent / "elsewhere", {name: address for name, _, address in words})
    elsewhere.train(3)
    assert desk("status", "--run", "r", "--json", *stores).json["step"] == 3


def test_resume_says_what_it_takes(desk: Desk) -> None:
    desk.plugin.made = {"nan_at": 2}
    for _ in range(2):
        desk.train(9, code=65)
    assert "--anyway" in desk("resume", "--run", "r", code=2).err
    assert desk.status()["state"] == "halted"
    assert desk("resume", "--run", "r", "--anyway", "--json").json == {"schema": "relay.resume/1", "was_halted": True}
    assert desk.status()["state"] == "idle" and desk.status()["halted_reason"] is None


def test_a_run_of_the_same_name_in_another_store_takes_nothing_of_this_ones_on_the_same_machine(
    desk: Desk, tmp_path: Path
) -> None:
    desk.train(3)
    (ours,) = (desk.folder / "sync").rglob("step_3.e1")
    before = {path: path.read_bytes() for path in ours.iterdir()}
    desk.environ["RELAY_STORE"] = str(tmp_path / "another store")
    desk.train(3)
    desk.train(6)
    assert before == {path: path.read_bytes() for path in ours.iterdir()}
    assert (ours.parent / "step_3.e1.json").exists()


def test_a_fork_whose_name_was_taken_meanwhile_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.train(3)
    real = forking.copy_checkpoint

    def meanwhile(*args: Any) -> Any:
        desk("init", "--run", "branch")
        return real(*args)

    monkeypatch.setattr(forking, "copy_checkpoint", meanwhile)
    refused = desk("fork", "--run", "r", "--to", "branch", code=78)
    assert refused.raised(NameTaken).run == "branch" and desk.status("branch")["step"] == 0


def test_a_setting_that_is_no_text_is_shown_escaped(desk: Desk) -> None:
    assert "\\udcff" in desk("config", "show", "data_dir=\udcff").out
