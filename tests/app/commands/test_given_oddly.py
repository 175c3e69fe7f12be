"""Addresses, homes, variables and names with a misleading look: refused (78), never taken for others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relay.app.providers import shipped
from relay.core.names import NotLetters
from relay.core.settings.config import Settings, leaves
from relay.core.settings.origins import BadSetting, from_environment
from relay.people.owners import infer
from tests.app.cli import Desk

KEYS = [*leaves(Settings), "task"]
GARBLED = "J\udcc3\udcbcrgen's Colab"


@pytest.mark.parametrize("address", ["   ", "file:/mnt/x", "s3:bucket/x", r"C:\relay", "~nobodyx/x"])
def test_what_is_no_store_begins_none_beside_the_command(tmp_path: Path, address: str) -> None:
    desk = Desk(tmp_path / "desk", environ={"RELAY_STORE": address})
    refused = desk("init", "--run", "r", code=78)
    assert "bug" not in refused.err
    assert not [path for path in desk.folder.iterdir() if path.name != "sync"]


def test_an_unknown_home_is_refused_for_this_machine_s_folders_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    refused = desk("run", "--run", "r", "sync_dir=~nobodyx/x", code=78)
    assert "~nobodyx/x" in refused.err


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RELAY_RUN", "RUN_NAME"),
        ("RELAY_RUN_NAME", "RUN_NAME"),
        ("RELAY_ACCOUNT", "ACCOUNT_ID"),
        ("RELAY_STORAGE_URL", "RELAY_STORE"),
        ("RELAY_STOER", "RELAY_STORE"),
        ("RELAY_TARGET_STEP", "RELAY_TARGET_STEPS"),
    ],
)
def test_an_unknown_variable_names_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(BadSetting) as error:
        from_environment({name: "x"}, KEYS)
    assert error.value.near == meant


@pytest.mark.parametrize(("label", "owner", "environ"), [(GARBLED, None, {}), ("x", GARBLED, {}), ("x", None, GARBLED)])
def test_a_letter_that_did_not_arrive_is_never_left_out_of_a_name(
    label: str, owner: str | None, environ: str | dict[str, str]
) -> None:
    with pytest.raises(NotLetters):
        infer(label, owner, None, {"RELAY_OWNER": environ} if environ else {}, "ana", shipped())  # type: ignore[dict-item]


@pytest.mark.slow
def test_register_in_a_shell_without_letters_says_what_to_set(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[3])
    plain = {"PYTHONPATH": root, "HOME": str(tmp_path), "RELAY_STORE": str(tmp_path / "store"), "RELAY_EPHEMERAL": "1"}
    words = [sys.executable, "-m", "tests.processes.program", "register", "u", "Jürgen's Colab", "--yes"]
    narrow = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    refused = subprocess.run(words, env=plain | narrow, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 78 and "Set PYTHONUTF8=1" in refused.stderr
    taken = subprocess.run(words, env=plain | {"LC_ALL": "C", "PYTHONUTF8": "1"}, cwd=tmp_path, capture_output=True)
    assert taken.returncode == 0 and "Jürgen" in taken.stdout.decode()
