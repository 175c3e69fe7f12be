"""A run as each older version wrote it: this version reads, verifies and resumes it bit for bit (P4)."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from relay.app.models.trm import Trm
from tests.app.cli import Desk
from trm.checkpoint import TrmSnapshot

pytestmark = pytest.mark.slow
DATA = Path(__file__).parent.parent / "data"
FORMATS = (1, 2)
"""Of entries, one run each; the newest is written by every other test."""
ACCOUNTS = [("account_1", "Ada's laptop", 4, 1), ("account_2", "Ben's Colab", 2, 1)]
"""Of those runs: name, label, steps, sessions."""
DECIDES = ("device", "torch", "instructions", "threads", "blas", "onednn")
"""What of a fingerprint decides the bits of a step on a CPU."""


@dataclass
class Old:
    """A run of an older format, on a machine of today."""

    folder: Path
    desk: Desk
    expected: dict[str, Any]

    def manifest(self, step: int) -> dict[str, Any]:
        (found,) = (self.desk.folder.parent / "store").rglob(f"step_{step}.e*/manifest.json")
        return dict(json.loads(found.read_text()))


@pytest.fixture(params=FORMATS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    folder = DATA / f"run_format_{request.param}"
    shutil.copytree(folder / "store", tmp_path / "store")
    desk = Desk(tmp_path / "here", {"RELAY_STORE": f"file://{tmp_path / 'store'}", "RUN_NAME": "first"}, Trm())
    return Old(folder, desk, json.loads((folder / "expected.json").read_text()))


@pytest.mark.parametrize("number", FORMATS)
def test_it_is_what_that_version_wrote_to_the_byte(number: int) -> None:
    folder = DATA / f"run_format_{number}"
    entries = sorted((folder / "store" / "runs").rglob("ledger/*.json"))
    assert len(entries) == 7
    assert {json.loads(entry.read_text())["body"]["format"] for entry in entries} == {number}
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 300_000


def test_it_is_read_and_verified(old: Old) -> None:
    desk, expected = old.desk, old.expected
    before = {file: file.read_bytes() for file in (desk.folder.parent / "store").rglob("*") if file.is_file()}
    status = desk("status", "--json").json
    assert (status["step"], status["head"]["state_hash"]) == (expected["from_step"], expected["from_state_hash"])
    assert [(link["account"], link["certified"]) for link in status["links"]] == [
        ("account_1", "unknown"),
        ("account_2", "exact"),
    ]
    report = desk("report", "--json").json
    assert [(row["id"], row["label"], row["steps"], row["sessions"]) for row in report["accounts"]] == ACCOUNTS
    assert "account_2" in desk("report").out
    found = desk("verify", "--deep", "--json").json
    assert found["ok"] and [row["loaded"] for row in found["checkpoints"]] == [True, True]
    assert before == {file: file.read_bytes() for file in before}


def test_it_is_resumed_bit_for_bit(old: Old) -> None:
    """The hash of a state does not depend on the machine. A step does: on another one its losses are compared."""
    desk, expected = old.desk, old.expected
    desk.train(expected["to_step"], *expected["settings"], run="first", account="account_1")
    reached = old.manifest(expected["to_step"])
    alike = all(reached["fingerprint"].get(name) == expected["fingerprint"][name] for name in DECIDES)
    assert reached["next"]["path"] == expected["path"]
    link = desk("status", "--json").json["links"][-1]
    assert (link["from_step"], link["to_step"]) == (expected["from_step"], expected["to_step"])
    if alike:
        assert reached["state_hash"] == desk.held("first") == expected["state_hash"]
        assert link["certified"] == "exact"
    for name, value in expected["metrics"].items():
        assert reached["metrics"][name] == pytest.approx(value, rel=1e-3, abs=1e-6), name
    assert desk("verify", "--json").json["ok"]


def test_a_fork_of_it_under_other_settings_trains_and_is_certified(old: Old) -> None:
    desk, begin, settings = old.desk, old.expected["from_step"], old.expected["settings"]
    for run, change, fresh in (("wider", "batch_size=3", True), ("slower", "lr=1e-5", False)):
        told = desk("fork", "--run", "first", "--to", run, *settings, change).out
        assert ("fresh carry" in told) == fresh, run
        for more in (2, 4):
            desk.train(begin + more, *settings, change, run=run, account="account_2")
        status = desk("status", "--run", run, "--json").json
        assert status["step"] == begin + 4
        assert [link["certified"] for link in status["links"]] == ["unknown", "exact"], run
        assert desk("verify", "--run", run, "--json").json["ok"]
    assert desk("status", "--run", "first", "--json").json["step"] == begin


def test_a_state_beyond_it_that_is_not_the_one_named_is_seen_by_verify_deep(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoints that the old version saved are loaded and found right next to it."""
    desk, expected, real = old.desk, old.expected, TrmSnapshot.save
    with monkeypatch.context() as patch:
        patch.setattr(TrmSnapshot, "save", lambda taken, folder: replace(real(taken, folder), state_hash="0" * 64))
        desk.train(expected["to_step"], *expected["settings"], run="first", account="account_1")
    assert desk("verify", "--json").json["ok"], "every byte is as it was written"
    found = desk("verify", "--deep", "--json", code=65).json
    loaded = {row["step"]: (row["ok"], row["loaded"]) for row in found["checkpoints"]}
    assert loaded == {4: (True, True), 6: (True, True), expected["to_step"]: (False, False)}
