"""Damaged or missing files in the store, met by real sessions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.acceptance.processes import Relay, Warm, run_args

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def checkpoint_file(relay: Relay, run: str, step: int) -> Path:
    """The largest file of a checkpoint."""
    folder = next((relay.folder / "store" / "checkpoints").glob(f"*/{run}/step_{step}.e*"))
    return max((path for path in folder.iterdir() if path.suffix != ".json"), key=lambda path: path.stat().st_size)


def content(relay: Relay) -> dict[Path, bytes]:
    """Every stored file of the run and its bytes."""
    store = relay.folder / "store"
    return {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and "hurt" in path.parts}


@pytest.fixture(scope="module")
def before_the_harm(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    """A folder with a run of three sessions, and with one that went further unbroken; trained once.

    Each session ends with a commit. Within a session, a slow disk makes one commit out of several that are due.
    """
    relay = Relay(tmp_path_factory.mktemp("before"), warm)
    for step in (2, 4, 6):
        relay.call(*run_args("hurt", "account_1", step, 2))
    relay.call(*run_args("whole", "account_1", 8, 8), anew=True)
    return relay.folder


@pytest.fixture
def trained(relay: Relay, before_the_harm: Path) -> Relay:
    """A copy that a test may hurt."""
    shutil.copytree(before_the_harm, relay.folder, dirs_exist_ok=True)
    return relay


def test_i6_a_damaged_newest_checkpoint_is_stepped_over_and_nothing_is_deleted(trained: Relay) -> None:
    path = checkpoint_file(trained, "hurt", 6)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    before = {entry for entry in (trained.folder / "store" / "checkpoints").rglob("*") if entry.is_file()}
    report = json.loads(trained.call("verify", "--run", "hurt", "--json", code=65))
    assert [row["step"] for row in report["checkpoints"] if not row["ok"]] == [6]
    trained.call(*run_args("hurt", "account_2", 8, 2), machine="two")
    assert before <= {entry for entry in (trained.folder / "store" / "checkpoints").rglob("*") if entry.is_file()}
    status = trained.status("hurt")
    assert status["step"] == 8
    assert trained.state_hash("hurt") == trained.state_hash("whole")
    assert json.loads(trained.call("verify", "--run", "hurt", "--json"))["ok"]


def test_the_machine_that_has_a_copy_commits_it_again(trained: Relay) -> None:
    path = checkpoint_file(trained, "hurt", 6)
    path.write_bytes(path.read_bytes()[:-7])
    trained.call(*run_args("hurt", "account_2", 8, 2))
    sent = (trained.folder / "store" / "checkpoints").glob("*/hurt/step_6.e*")
    assert len({path.name for path in sent}) == 2, "the copy of this machine was committed under a new epoch"
    assert trained.state_hash("hurt") == trained.state_hash("whole")
    assert json.loads(trained.call("verify", "--run", "hurt", "--json"))["ok"]


def test_i1_a_hole_in_the_ledger_stops_everything_and_is_named(trained: Relay) -> None:
    hole = sorted((trained.folder / "store" / "runs").glob("*/hurt/ledger/*.json"))[2]
    hole.unlink()
    before = content(trained)
    for args in (run_args("hurt", "account_2", 8, 2), ("verify", "--run", "hurt"), ("status", "--run", "hurt")):
        trained.call(*args, code=65)
        assert f"{2:020d}.json" in trained.last_error
    assert content(trained) == before


def test_no_verifiable_checkpoint_never_restarts_at_zero(trained: Relay) -> None:
    for step in (2, 4, 6):
        checkpoint_file(trained, "hurt", step).write_bytes(b"x")
    trained.call(*run_args("hurt", "account_2", 8, 2), code=65)
    assert trained.status("hurt")["step"] == 6
