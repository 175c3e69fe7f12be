"""The commands people type, in this process with a toy workload: results, refusals, exit codes, one JSON document."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from relay.cli import Trm
from relay.errors import BadConfig
from tests.relay.cli import Desk, ToyKind
from tests.relay.toy import hash_of, state_at


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
        "epoch": 0,
        "state": "new",
        "halted_reason": None,
        "holder": None,
        "lease_expires_at": None,
        "head": None,
        "links": [],
        "links_total": 0,
    }


def test_register_run_report_as_the_guide_types_them(desk: Desk) -> None:
    made = desk("register", "account_1", "John's Colab")
    assert "John at colab" in made.out and "inferred: owner John (from the label)" in made.err
    desk("register", "account_3", "Kaggle - Project 1", "--yes")
    desk("run", "--account", "account_1", "--run", "r", "--target-steps", "10", "--checkpoint-every", "4")
    shown = desk("report", "--run", "r").out
    assert "MULTI-ACCOUNT TRAINING PROGRESS REPORT" in shown
    assert "Total Progress:  100.0% (10/10 steps)" in shown
    assert "account_1      | Steps:      10 | Sessions:   1 | ready" in shown
    assert "account_3      | Steps:       0 | Sessions:   0 |unconfirmed" in shown, "Kaggle's needs its person's word"


def test_two_accounts_one_run_equals_unbroken(desk: Desk) -> None:
    desk.train(7, account="account_1")
    desk.train(12, account="account_2")
    status = desk.status()
    assert status["head"]["state_hash"] == hash_of(12, state_at(12))
    assert [(k["account"], k["from_step"], k["to_step"]) for k in status["links"]] == [
        ("account_1", 0, 7),
        ("account_2", 7, 12),
    ]
    assert status["links"][1]["certified"] == "exact" and status["state"] == "finished"


def test_run_prints_one_document_and_names_a_new_run_on_stderr(desk: Desk) -> None:
    done = desk.train(5, "--json")
    assert done.json["schema"] == "relay.run/1" and done.json["durable_step"] == 5 and done.json["commits"] >= 1
    assert "NEW run r at step 0" in done.err and "NEW account account_1" in done.err
    assert "step 5/5" in done.err


def test_a_target_at_or_below_the_head_takes_no_lease(desk: Desk) -> None:
    desk.train(5)
    before = files(desk.folder / "relay_store")
    assert "target of 5 is reached" in desk.train(5).out
    assert "target of 3 is reached" in desk.train(3).out
    assert files(desk.folder / "relay_store") == before


def test_the_default_target_is_the_runs_own_then_the_tasks(desk: Desk) -> None:
    desk("run", "--run", "r")
    assert desk.status()["step"] == 40
    desk.train(45)
    desk("run", "--run", "r")
    assert desk.status()["step"] == 45


@pytest.mark.slow
def test_a_planned_end_hands_off_with_75(desk: Desk) -> None:
    desk.kind.made = {"crash": {}, "step_s": 0.02, "sleep": __import__("time").sleep}
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


def test_duplicate_account_is_idempotent_or_refused_with_the_fix(desk: Desk) -> None:
    desk("register", "account_1", "John's Colab")
    assert "unchanged" in desk("register", "account_1", "John's Colab").out
    assert "account_1" in desk("register", "account_1", "Maria's Kaggle", code=78).err


def test_an_account_that_run_registered_by_its_id_can_be_described_later(desk: Desk) -> None:
    desk.train(3)
    assert "John at colab" in desk("register", "account_1", "John's Colab").out
    assert desk("accounts", "list", "--json").json["accounts"][0]["label"] == "John's Colab"


def test_a_second_account_of_one_person_at_one_provider_is_refused(desk: Desk) -> None:
    desk("register", "account_1", "John's Colab")
    refused = desk("register", "account_2", "Colab too", "--owner", "John", code=77)
    assert "John" in refused.err and "Colab" in refused.err


def test_verify_names_what_is_damaged_and_the_run_goes_on_from_before_it(desk: Desk) -> None:
    desk.train(3)
    desk.train(6)
    assert desk("verify", "--run", "r", "--json").json["ok"]
    state = next((desk.folder / "relay_store").rglob("step_6.e2/state.json"))
    state.write_bytes(b"x" + state.read_bytes()[1:])
    found = desk("verify", "--run", "r", "--json", code=65).json
    assert [(c["step"], c["ok"]) for c in found["checkpoints"]] == [(3, True), (6, False)]
    assert "state.json" in found["checkpoints"][1]["reason"]
    assert "DAMAGED" in desk("verify", "--run", "r", code=65).out
    other = Desk(desk.folder.parent / "other", {"RELAY_STORE": (desk.folder / "relay_store").as_uri()})
    assert "Went back to step 3" in other.train(9, account="account_2").err
    assert desk.status()["head"]["state_hash"] == hash_of(9, state_at(9))
    assert desk("verify", "--run", "r", "--json").json["ok"]


def test_verify_names_a_hole_and_status_refuses_to_guess(desk: Desk) -> None:
    desk.train(6, "--checkpoint-every", "3")
    next((desk.folder / "relay_store").rglob(f"r/ledger/{2:020d}.json")).unlink()
    found = desk("verify", "--run", "r", "--json", code=65).json
    assert not found["ok"] and "slot 2" in found["incidents"][-1]["text"]
    assert "slot 2" in desk("status", "--run", "r", code=65).err


def test_verify_counts_a_damaged_entry_against_the_run(desk: Desk) -> None:
    desk.train(6, "--checkpoint-every", "3")
    entry = next((desk.folder / "relay_store").rglob(f"r/ledger/{1:020d}.json"))
    entry.write_bytes(entry.read_bytes().replace(b'"at"', b'"ta"'))
    found = desk("verify", "--run", "r", "--json", code=65).json
    assert any("slot 1" in i["text"] for i in found["incidents"])


def test_evaluate_says_the_time_for_all_rows_first_and_which_checkpoint(desk: Desk) -> None:
    desk.train(3)
    desk.train(6)
    done = desk("evaluate", "--run", "r", "--rows", "20", "--json")
    assert done.json["step"] == 6 and done.json["which"] == "newest checkpoint"
    assert "All 100 rows would take" in done.err and "20 rows" in done.err
    assert desk("evaluate", "--run", "r", "--step", "3", "--json").json["step"] == 3
    assert "retains 3, 6" in desk("evaluate", "--run", "r", "--step", "4", code=65).err


def test_export_writes_step_n(desk: Desk) -> None:
    desk.train(6)
    written = desk("export", "--run", "r", "--json").json
    assert written["files"] == [str(desk.folder / "export" / "step_6" / "ema.json")]
    assert written["exact"] is False


def test_fork_starts_a_run_of_its_own_from_a_retained_step(desk: Desk) -> None:
    desk.train(3)
    desk.train(6)
    desk("fork", "--run", "r", "--to", "branch", "--from-step", "3")
    assert desk.status("branch")["step"] == 3
    desk.train(6, run="branch", account="account_2")
    assert desk.status("branch")["head"]["state_hash"] == desk.status("r")["head"]["state_hash"]
    assert "already" in desk("fork", "--run", "r", "--to", "branch", code=78).err


TINY = ("arch.hidden_size=8", "arch.num_heads=2", "arch.puzzle_emb_ndim=8", "batch_size=2", "evaluation.rows=2")


def test_the_printed_fork_command_works_and_so_does_the_one_that_fork_prints(desk: Desk) -> None:
    desk.kind = Trm()
    desk.train(1, *TINY, "data.train_rows=20")
    refused = desk.train(2, *TINY, "data.train_rows=30", "seed=5", "device=cpu", code=78).err
    assert refused.count("sha256:") == 2, "both hashes are told as the difference, none as a setting"
    fork = shlex.split(refused.partition("newest checkpoint: ")[2])
    assert fork[:3] == ["python", "rotate_accounts.py", "fork"] and "data.train=generated" in fork
    forked = desk(*fork[2:]).out
    train, _, warning = forked.partition(": ")[2].partition("\n")
    assert "may be rows that r trained on" in warning
    done = desk(*shlex.split(train)[2:], *TINY, "--target-steps", "2")
    assert "Steps 1 to 2" in done.out and desk.status("r_2")["step"] == 2


def test_report_and_next_count_what_an_account_gave_to_every_run(desk: Desk) -> None:
    desk.train(6, run="one")
    desk.train(2, run="two", account="account_2")
    shown = desk("report", "--run", "two", "--json").json
    assert [(a["id"], a["steps"], a["sessions"]) for a in shown["accounts"]] == [
        ("account_1", 6, 1),
        ("account_2", 2, 1),
    ]
    assert (shown["clock"], desk("report", "--run", "two").out.count("(this machine's clock)")) == ("this machine", 1)


def test_prepare_needs_no_store(desk: Desk) -> None:
    assert desk("prepare").out == "train: 4 puzzles\n"
    assert not (desk.folder / "relay_store").exists()


def test_no_gpu_for_a_large_task_is_said_loudly(desk: Desk) -> None:
    assert "NO GPU" in desk.train(2, "task=sudoku").err


def test_accounts_can_be_marked_and_forgotten_and_next_obeys(desk: Desk) -> None:
    desk("register", "account_1", "John's Colab")
    desk("register", "account_2", "Maria's Modal")
    desk("accounts", "mark", "account_1", "quota_exceeded")
    turn = desk("next", "--json").json
    assert turn["account"] == "account_2"
    assert turn["command"] == "ACCOUNT_ID=account_2 RUN_NAME=sudoku_rotation bash multi_account_workflow.sh"
    assert "|quota_exceeded║" in desk("report").out
    desk("accounts", "forget", "account_2")
    assert desk("next", "--json").json["account"] is None


def test_doctor_says_what_to_do(desk: Desk) -> None:
    desk.train(3)
    sound = desk("doctor", "--run", "r", WANDB_DISABLED="false")
    assert "self-test passed" in sound.out and "WANDB_DISABLED" in sound.out
    (desk.folder / "blocked").write_text("")
    blocked = desk("doctor", "storage.url=blocked/store", code=None)
    assert blocked.code in (69, 78) and "LOOK store" in blocked.out


def test_stop_without_a_holder_and_resume_without_a_halt_do_nothing(desk: Desk) -> None:
    desk.train(3)
    assert desk("stop", "--run", "r", "--json").json["asked"] is None
    assert desk("resume", "--run", "r", "--json").json["was_halted"] is False


def test_the_same_failure_twice_halts_and_only_resume_anyway_goes_on(desk: Desk) -> None:
    desk.train(3)
    desk.kind.made = {"nan_at": 5}
    desk.train(9, code=65)
    desk.train(9, code=65)
    assert desk.status()["state"] == "halted"
    assert "halted" in desk("doctor", "--run", "r", code=65).out
    desk.kind.made = {}
    assert "halted" in desk.train(9, code=65).err
    desk("resume", "--run", "r", code=2)
    desk("resume", "--run", "r", "--anyway")
    desk.train(9)
    assert desk.status()["head"]["state_hash"] == hash_of(9, state_at(9))


def test_a_bug_is_a_line_and_a_log_with_the_traceback(desk: Desk) -> None:
    desk.train(3)
    desk.kind.made = {"crash": {4: ZeroDivisionError("boom")}}
    crashed = desk.train(9, code=1)
    assert "boom" in crashed.err and "Traceback (" not in crashed.err
    log = crashed.err.rsplit("Traceback: ", 1)[1].strip()
    assert "ZeroDivisionError: boom" in Path(log).read_text()


def test_config_show_tells_origins_and_masks_secrets(desk: Desk) -> None:
    shown = desk("config", "show", "--origin", "seed=3", RUN_NAME="mine", RELAY_STORE="file://user:hunter22@/x").out
    assert "run = mine    # environment variable RUN_NAME" in shown
    assert "seed = 3    # command line: seed=3" in shown
    assert "batch_size = 4    # preset sudoku4" in shown
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
    monkeypatch.setattr(ToyKind, "remarks", lambda self, workload: ("MEMORY: 4 parts of 192",))
    told = desk.train(20).err
    assert "MEMORY: 4 parts of 192" in told
    assert "PACE: a step takes" in told


def test_a_gpu_that_cannot_be_used_stops_session_and_doctor_with_78(desk: Desk, monkeypatch) -> None:
    def refuse(self, wanted: str) -> str:
        raise BadConfig("This torch cannot use Tesla P100 (sm_60). Choose another GPU.")

    monkeypatch.setattr(ToyKind, "device", refuse)
    assert "cannot use Tesla P100" in desk.train(2, code=78).err
    assert "cannot use Tesla P100" in desk("doctor", code=78).out
