"""The care that the demonstration takes with folders, and how it is shown; test_packaging.py runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relay.app.commands.demonstration import show
from relay.app.demo import RELAYED, UNBROKEN, Demo, prepare
from relay.core.errors import BadConfig, UsageError
from tests.facts import raising


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        prepare(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "demo", tmp_path / ("x" * 300)):
        with raising(BadConfig, path, "--folder"):
            prepare(path)
    assert (tmp_path / "file").read_text() == "mine"


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
