"""The commands about the stored checkpoints of a run: verify, evaluate, export and fork."""

from __future__ import annotations

import shlex

import pytest

from relay.app.models.trm import Trm
from relay.core.errors import BadConfig
from relay.core.events import WentBack
from tests.app.cli import Desk
from tests.core.toy import hash_of, state_at


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
    assert other.train(9, account="account_2").event(WentBack).step == 3
    assert desk.held() == hash_of(9, state_at(9))
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
    assert "100 rows" in done.err and "20 rows" in done.err
    assert desk("evaluate", "--run", "r", "--step", "3", "--json").json["step"] == 3
    assert "retains 3, 6" in desk("evaluate", "--run", "r", "--step", "4", code=65).err


def test_export_writes_step_n(desk: Desk) -> None:
    desk.train(6)
    written = desk("export", "--run", "r", "--json").json
    assert written["files"] == [str(desk.folder / "export" / "step_6" / "ema.json")]
    assert written["exact"] is False


def test_an_export_that_cannot_be_written_is_named(desk: Desk) -> None:
    desk.train(6)
    (desk.folder / "file").touch()
    for out in ("file", "file/export", "x" * 300):
        done = desk("export", "--run", "r", "--out", out, code=78)
        done.raised(BadConfig)
        assert str(desk.folder / out) in done.err and "--out" in done.err


def test_fork_starts_a_run_of_its_own_from_a_retained_step(desk: Desk) -> None:
    desk.train(3)
    desk.train(6)
    desk("fork", "--run", "r", "--to", "branch", "--from-step", "3")
    assert desk.status("branch")["step"] == 3
    desk.train(6, run="branch", account="account_2")
    assert desk.held("branch") == desk.held("r")
    assert "already" in desk("fork", "--run", "r", "--to", "branch", code=78).err


TINY = ("arch.hidden_size=8", "arch.num_heads=2", "arch.puzzle_emb_ndim=8", "batch_size=2", "evaluation.rows=2")


@pytest.mark.slow
def test_the_printed_fork_command_works_and_so_does_the_one_that_fork_prints(desk: Desk) -> None:
    desk.plugin = Trm()
    desk.train(1, *TINY, "data.train_rows=20")
    refused = desk.train(2, *TINY, "data.train_rows=30", "seed=5", "device=cpu", code=78).err
    assert "sha256:" not in refused, "given settings are told, not what follows from them"
    fork = shlex.split(refused.partition("newest checkpoint: ")[2])
    assert fork[:3] == ["python", "rotate_accounts.py", "fork"] and {"data.train_rows=30", "seed=5"} < {*fork}
    forked = desk(*fork[2:]).out
    train, _, warning = forked.partition(": ")[2].partition("\n")
    assert "validation rows" in warning
    done = desk(*shlex.split(train)[2:], *TINY, "--target-steps", "2")
    assert "Steps 1 to 2" in done.out and desk.status("r_2")["step"] == 2
