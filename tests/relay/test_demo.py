"""The demonstration in real processes on a small model, and the care it takes with folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relay.demo import Demo, prepare
from relay.errors import UsageError

ROOT = Path(__file__).parents[2]


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
    found = Demo(tmp_path, 400, (), environ, print)._environment()
    assert not {"RELAY_STORE", "ACCOUNT_ID", "RUN_NAME"} & set(found)
    assert found["PATH"] == "/bin" and found["RELAY_EPHEMERAL"] == "1"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_resumed_and_unbroken_end_in_the_same_bytes(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "rotate_accounts.py"), "demo", "--steps", "160", "--json"]
    environ = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["equal"] and found["resumed_from_step"] < found["killed_at_step"] < 160
    assert [link["account"] for link in found["links"]] == ["account_1", "account_2"]
    assert not list(tmp_path.glob("relay_store"))
