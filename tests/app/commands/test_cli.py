"""The commands people type, in this process with a toy workload: results, refusals, exit codes, one JSON document."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from relay.app.commands import table
from relay.core.errors import BadConfig
from tests.app.cli import Desk, ToyPlugin
from tests.core.toy import hash_of, state_at

pytestmark = pytest.mark.slow


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", ["report", "status", "next", "config show", "accounts list"])
def test_readers_work_before_anything_exists_and_write_nothing(desk: Desk, command: str) -> None:
    assert desk(*command.split()).out
    assert desk(*command.split(), "--json").json["schema"].startswith("relay.")
    assert not files(desk.folder)


def test_status_before_any_run_is_the_contract(desk: Desk) -> None:
    assert desk("status", "--run", "r", "--json").json == {
        "schema": "relay.status/1",
        "run": "r",
        "step": 0,
        "target_steps": 40,
        "target_changed": None,
        "epoch": 0,
        "state": "new",
        "halted_reason": None,
        "holder": None,
        "lease_expires_at": None,
        "head": None,
        "evaluation": {"newest": None, "best": None},
        "untested": [],
        "links": [],
        "links_total": 0,
        "session": None,
    }


def test_a_session_and_status_say_what_it_does(desk: Desk) -> None:
    said = desk.train(7).err.splitlines()
    assert said[0].startswith("Training as account_1, owner ")
    store = (desk.folder / "relay_store").as_uri()
    start = said.index("Run: r, step 0 of 7")
    assert said[start + 1 : start + 4] == [
        "Model: task sudoku4, 4 parameters, batch 4",
        "Data: 100 rows, generated",
        f"Device: toy, 1 process, path toy, store {store}",
    ]
    found = desk.status()["session"]
    assert (found["epoch"], found["account"], found["from_step"], found["step"]) == (1, "account_1", 0, 7)
    assert (found["model"], found["batch"], found["data"]) == ("task sudoku4", 4, "generated")
    assert (found["device"], found["path"], found["store"]) == ("toy", "toy", store)


def test_a_bug_report_names_versions_and_nobody(desk: Desk) -> None:
    found = desk("env", "--json", RELAY_STORE="s3://key:hunter2secret@bucket/x", RELAY_OWNER="Ana").json
    assert found["schema"] == "relay.env/1" and found["packages"]["pydantic"] and found["installation"] == "checkout"
    assert {"RELAY_STORE", "RELAY_OWNER"} <= set(found["variables"])
    assert not re.search(f"hunter2|Ana|{desk.folder}", json.dumps(found))
    assert desk("--version").out == f"trm-relay {found['trm-relay']}\n"


def test_help_groups_every_command_with_two_examples_that_exist(desk: Desk) -> None:
    shown = desk("-h").out
    assert shown == desk("--help").out and desk("run", "-h").code == 0
    assert len(table.GROUPS) == 5 == len(table.EXAMPLES) and table.GROUPS.keys() == table.EXAMPLES.keys()
    for panel, examples in table.EXAMPLES.items():
        assert panel in shown and len(examples) == 2
        for example in examples:
            first, second, *_ = [*shlex.split(example), ""]
            assert first in table.COMMANDS or second in {"accounts": table.ACCOUNTS, "runs": table.RUNS}[first]
            desk(*([first] if first in table.COMMANDS else [first, second]), "--help")
    assert "resume" not in re.findall(r"^\W+(\w+)", shown, re.MULTILINE)


def test_two_accounts_one_run_equals_unbroken(desk: Desk) -> None:
    desk.train(7, account="account_1")
    desk.train(12, account="account_2")
    status = desk.status()
    assert status["head"]["state_hash"] == desk.held() == hash_of(12, state_at(12))
    assert [(k["account"], k["from_step"], k["to_step"]) for k in status["links"]] == [
        ("account_1", 0, 7),
        ("account_2", 7, 12),
    ]
    assert status["links"][1]["certified"] == "exact" and status["state"] == "finished"


def test_run_prints_one_document_and_names_a_new_run_on_stderr(desk: Desk) -> None:
    done = desk.train(5, "--json")
    assert done.json["schema"] == "relay.run/1" and done.json["durable_step"] == 5 and done.json["commits"] >= 1
    assert "NEW run r " in done.err and "NEW account account_1:" in done.err
    assert "step 5/5" in done.err


def test_a_target_that_is_reached_takes_no_lease(desk: Desk) -> None:
    desk.train(5)
    before = files(desk.folder / "relay_store")
    for words in (("--target-steps", "5"), ()):
        done = desk("run", "--run", "r", "--account", "account_1", *words, "--json").json
        assert (done["from_step"], done["durable_step"], done["epoch"]) == (5, 5, 0)
        assert "--target-steps" in done["message"] and " 5 " in done["message"]
    assert files(desk.folder / "relay_store") == before


def test_the_default_target_is_the_runs_own_then_the_tasks(desk: Desk) -> None:
    desk("run", "--run", "r")
    assert desk.status()["step"] == 40
    desk.train(45)
    desk("run", "--run", "r")
    assert desk.status()["step"] == 45


@pytest.mark.slow
def test_a_planned_end_hands_off_with_75(desk: Desk) -> None:
    desk.plugin.made = {"crash": {}, "step_s": 0.02, "sleep": __import__("time").sleep}
    done = desk.train(100_000, "--budget-minutes", "0.15", code=75)
    assert "Durable step" in done.out
    assert desk.status()["step"] > 0 and desk.status()["state"] == "idle"


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("run", "bach_size=3"), 78, ["bach_size", "batch_size"]),
        (("run", "batch_size=often"), 78, ["batch_size", "integer"]),
        (("run", "task=sudoko"), 78, ["sudoko", "sudoku4"]),
        (("run", "--run", "My Run"), 78, ["my_run"]),
        (("run", "--account", "Me!"), 78, ["account"]),
        (("run", "data.train=nowhere.csv"), 65, ["nowhere.csv", "data.train"]),
        (("run", "storage.url=ftp://x"), 78, ["ftp", "file://"]),
        (("run", "storage.url=s3://me:hunter2@bucket"), 78, ["s3", "AWS_ACCESS_KEY_ID"]),
        (("run", "--target-steps", "-1"), 78, ["target_steps"]),
        (("run", "--target-steps", "many"), 2, ["target-steps"]),
        (("run", "--checkpoint-every", "0"), 78, ["checkpoint.every_steps"]),
        (("verify", "--run", "nosuch"), 78, ["nosuch"]),
        (("evaluate", "--run", "nosuch"), 78, ["nosuch"]),
        (("fly",), 2, ["fly"]),
        (("config", "show", "--config", "nowhere.yaml"), 78, ["nowhere.yaml"]),
        (("register", "account_1"), 2, ["LABEL"]),
        (("accounts", "edit", "nobody", "--label", "x"), 78, ["nobody"]),
        (("evaluate", "--split", "train"), 2, ["test", "valid"]),
    ],
)
def test_mistakes_are_one_paragraph_with_their_code(
    desk: Desk, words: tuple[str, ...], code: int, expected: list[str]
) -> None:
    refused = desk(*words, code=code)
    assert all(part in refused.err for part in expected), refused.err
    assert "Traceback" not in refused.err and refused.out == ""
    document = desk(*words, "--json", code=code).json
    assert document["schema"] == "relay.error/1" and document["exit_code"] == code
    assert all(part in document["message"] for part in expected)


def test_a_name_one_edit_away_is_refused_unless_new(desk: Desk) -> None:
    desk("run", "--run", "sudoku", "--target-steps", "2")
    assert "sudoku" in desk("run", "--run", "sudoki", "--target-steps", "2", code=78).err
    desk("run", "--run", "sudoki", "--target-steps", "2", "--new")


def test_another_pinned_setting_is_refused_with_the_difference_and_the_fork_command(desk: Desk) -> None:
    desk.train(3)
    refused = desk.train(5, "seed=2", code=78)
    assert "seed" in refused.err and "fork --run r" in refused.err
    assert desk.status()["step"] == 3


def test_prepare_needs_no_store(desk: Desk) -> None:
    assert desk("prepare").out == "train: 4 puzzles\n"
    assert not (desk.folder / "relay_store").exists()


def test_doctor_says_what_to_do(desk: Desk) -> None:
    desk.train(3)
    sound = desk("doctor", "--run", "r", WANDB_DISABLED="false")
    assert "WANDB_DISABLED" in sound.out
    (desk.folder / "blocked").write_text("")
    blocked = desk("doctor", "storage.url=blocked/store", code=None)
    assert blocked.code in (69, 78) and "LOOK store" in blocked.out


def test_stop_without_a_holder_and_resume_without_a_halt_do_nothing(desk: Desk) -> None:
    desk.train(3)
    assert desk("stop", "--run", "r", "--json").json["asked"] is None
    for name in ("unhalt", "resume"):
        assert desk(name, "--run", "r", "--json").json["was_halted"] is False


def test_the_same_failure_twice_halts_and_only_resume_anyway_goes_on(desk: Desk) -> None:
    desk.train(3)
    desk.plugin.made = {"nan_at": 5}
    desk.train(9, code=65)
    desk.train(9, code=65)
    assert desk.status()["state"] == "halted"
    assert "halted" in desk("doctor", "--run", "r", code=65).out
    desk.plugin.made = {}
    assert "halted" in desk.train(9, code=65).err
    desk("resume", "--run", "r", code=2)
    desk("resume", "--run", "r", "--anyway")
    desk.train(9)
    assert desk.held() == hash_of(9, state_at(9))


def test_a_bug_is_a_line_and_a_log_with_the_traceback(desk: Desk) -> None:
    desk.train(3)
    desk.plugin.made = {"crash": {4: ZeroDivisionError("boom")}}
    crashed = desk.train(9, code=1)
    assert "boom" in crashed.err and "Traceback (" not in crashed.err
    log = crashed.err.rsplit("Traceback: ", 1)[1].strip()
    assert "ZeroDivisionError: boom" in Path(log).read_text()


def test_config_show_tells_origins_and_masks_secrets(desk: Desk) -> None:
    shown = desk("config", "show", "--origin", "seed=3", RUN_NAME="mine", RELAY_STORE="file://user:hunter22@/x").out
    origins = dict(re.findall(r"^(\S+ = \S+) +# .*?(\S+)$", shown, re.MULTILINE))
    assert origins["run = mine"] == "RUN_NAME"
    assert origins["seed = 3"] == "seed=3" and origins["batch_size = 4"] == "sudoku4"
    assert "hunter22" not in shown


def test_every_command_has_help_and_json(desk: Desk) -> None:
    listed = desk("--help").out
    for command in ("register", "report", "status", "next", "run", "prepare", "verify", "export", "config", "doctor"):
        assert command in listed
        if command != "config":
            assert "--json" in desk(command, "--help").out


def test_a_session_writes_one_log_without_secrets(desk: Desk) -> None:
    desk.train(3)
    (log,) = (desk.folder / "sync" / "logs").glob("*.log")
    assert "NEW run r" in log.read_text()


def test_read_only_commands_work_on_a_read_only_store(desk: Desk) -> None:
    desk.train(3)
    store = desk.folder / "relay_store"
    before = files(store)
    for command in ("report", "status", "next", "verify", "export", "evaluate"):
        desk(command, "--run", "r")
    assert files(store) == before
    assert json.loads(desk("status", "--run", "r", "--json").out)["step"] == 3


def test_what_the_workload_remarks_is_told_with_the_pace(desk: Desk, monkeypatch) -> None:
    """A split batch, an old card: one line each, then milliseconds a step and how many a session has time for."""
    monkeypatch.setattr(ToyPlugin, "remarks", lambda self, workload: ("MEMORY: 4 parts of 192",))
    told = desk.train(20).err
    assert "MEMORY: 4 parts of 192" in told
    assert "PACE: " in told


def test_a_gpu_that_cannot_be_used_stops_session_and_doctor_with_78(desk: Desk, monkeypatch) -> None:
    def refuse(self, wanted: str) -> str:
        raise BadConfig("This torch cannot use Tesla P100 (sm_60). Choose another GPU.")

    monkeypatch.setattr(ToyPlugin, "device", refuse)
    assert "cannot use Tesla P100" in desk.train(2, code=78).err
    assert "cannot use Tesla P100" in desk("doctor", code=78).out
