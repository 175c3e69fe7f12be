"""A run as the first version wrote it: this version reads, verifies and resumes it bit for bit (P4)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from relay.cli import Trm
from tests.relay.cli import Desk

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parent.parent / "data" / "run_format_1"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())
DECIDES = ("device", "torch", "instructions", "threads", "blas", "onednn")
"""What of a fingerprint decides the bits of a step on a CPU."""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    shutil.copytree(FOLDER / "store", tmp_path / "store")
    return Desk(tmp_path / "here", {"RELAY_STORE": f"file://{tmp_path / 'store'}", "RUN_NAME": "first"}, Trm())


def manifest(desk: Desk, step: int) -> dict[str, Any]:
    (found,) = (desk.folder.parent / "store").rglob(f"step_{step}.e*/manifest.json")
    return dict(json.loads(found.read_text()))


def test_it_is_what_the_first_version_wrote_to_the_byte() -> None:
    entries = sorted((FOLDER / "store" / "runs").rglob("ledger/*.json"))
    assert len(entries) == 7
    assert {json.loads(entry.read_text())["body"]["format"] for entry in entries} == {1}
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < 300_000


def test_it_is_read_and_verified(desk: Desk) -> None:
    before = {file: file.read_bytes() for file in (desk.folder.parent / "store").rglob("*") if file.is_file()}
    status = desk("status", "--json").json
    assert (status["step"], status["head"]["state_hash"]) == (EXPECTED["from_step"], EXPECTED["from_state_hash"])
    assert [(link["account"], link["certified"]) for link in status["links"]] == [
        ("account_1", "unknown"),
        ("account_2", "exact"),
    ]
    report = desk("report", "--json").json
    assert [(row["id"], row["label"], row["steps"], row["sessions"]) for row in report["accounts"]] == [
        ("account_1", "Ada's laptop", 4, 1),
        ("account_2", "Ben's Colab", 2, 1),
    ]
    assert "account_2" in desk("report").out
    assert desk("verify", "--json").json["ok"]
    assert before == {file: file.read_bytes() for file in before}


def test_it_is_resumed_bit_for_bit(desk: Desk) -> None:
    """The hash of a state does not depend on the machine. A step does: on another one its losses are compared."""
    done = desk.train(EXPECTED["to_step"], *EXPECTED["settings"], run="first", account="account_1")
    reached = manifest(desk, EXPECTED["to_step"])
    alike = all(reached["fingerprint"].get(name) == EXPECTED["fingerprint"][name] for name in DECIDES)
    assert reached["next"]["path"] == EXPECTED["path"]
    assert f"Steps {EXPECTED['from_step']} to {EXPECTED['to_step']}" in done.out
    if alike:
        assert reached["state_hash"] == EXPECTED["state_hash"]
        assert "Link: exact." in done.out
    for name, value in EXPECTED["metrics"].items():
        assert reached["metrics"][name] == pytest.approx(value, rel=1e-3, abs=1e-6), name
    assert desk("verify", "--json").json["ok"]
