"""The demonstration in real processes on a small model, and the care it takes with folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relay.app.commands.demonstration import show
from relay.app.demo import RELAYED, UNBROKEN, Demo, prepare
from relay.core.errors import UsageError

ROOT = Path(__file__).parents[2]
SMALL = ("batch_size=4", "data.train_rows=1000", "arch.H_cycles=1", "arch.L_cycles=1")
"""Of a training: little arithmetic."""


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        prepare(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_what_an_earlier_demonstration_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "relay_store").mkdir()
    (tmp_path / "relay_store" / "old").write_text("")
    (tmp_path / "notes.txt").write_text("mine")
    prepare(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.yaml", "notes.txt"]


def test_nobodys_settings_reach_the_demonstration(tmp_path: Path) -> None:
    environ = {"RELAY_STORE": "s3://real", "ACCOUNT_ID": "me", "RUN_NAME": "mine", "PATH": "/bin"}
    environ |= {"RELAY_DRIVE_TOKEN": "of mine", "AWS_PROFILE": "mine"}
    found = Demo(tmp_path, 400, (), environ, print)._environment()
    assert not {"RELAY_STORE", "ACCOUNT_ID", "RUN_NAME"} & set(found)
    assert found["RELAY_DRIVE_TOKEN"] == "of mine" and found["AWS_PROFILE"] == "mine", "the storage must know us"
    assert found["PATH"] == "/bin" and found["RELAY_EPHEMERAL"] == "1"


def test_every_tenth_of_a_session_is_told_once_and_every_line_is_handed_on(tmp_path: Path) -> None:
    told: list[str] = []
    steps = [f"step {step}/1,000  x" for step in (1, 99, 100, 101, 430, 1000)]
    printing = [sys.executable, "-c", f"import sys; print({chr(10).join(['hello', *steps])!r}, file=sys.stderr)"]
    with subprocess.Popen(printing, stderr=subprocess.PIPE, text=True) as child:
        found = list(Demo(tmp_path, 1000, (), {}, told.append)._followed(child))
    assert told == ["   step 100 of 1,000", "   step 430 of 1,000", "   step 1,000 of 1,000"]
    assert [step for _, step in found] == [0, 1, 99, 100, 101, 430, 1000]


def test_both_hashes_fit_their_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    hashes = {RELAYED: "ab" * 32, UNBROKEN: "ab" * 32}
    show({"killed_at_step": 260, "resumed_from_step": 200, "state_hash": hashes, "equal": True})
    assert capsys.readouterr().out.count("abababababababab") == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_resumed_and_unbroken_end_in_the_same_bytes(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "rotate_accounts.py"), "demo", "--steps", "160", *SMALL, "--json"]
    environ = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["equal"] and found["resumed_from_step"] < found["killed_at_step"] < 160
    assert [link["account"] for link in found["links"]] == ["account_1", "account_2"]
    assert not list(tmp_path.glob("relay_store"))
