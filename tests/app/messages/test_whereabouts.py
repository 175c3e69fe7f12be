"""A mistyped store or run is recognizable: every command names the address and lists the existing names."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.app.messages.whereabouts import NOWHERE, missing
from relay.core.ledger.ledger import UnknownRun
from tests.app.cli import Desk


def flat(text: str) -> str:
    """A report's text without its box."""
    return " ".join("".join(c for c in text if c not in "║╔╗╚╝═╠╣").split())


@pytest.mark.parametrize("command", ["status", "report", "doctor"])
def test_a_store_that_nobody_made_is_called_so_and_is_not_made(desk: Desk, tmp_path: Path, command: str) -> None:
    away = tmp_path / "away" / "store"
    (tmp_path / "away").mkdir()
    out = flat(desk(command, "--run", "r", RELAY_STORE=away.as_uri()).out)
    assert away.as_uri().replace(" ", "") in out.replace(" ", "")
    assert NOWHERE in out
    assert not list((tmp_path / "away").iterdir())


def test_doctor_makes_nothing_where_even_the_folder_above_is_missing_and_warns_of_a_mistyped_address(
    desk: Desk, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    found = desk("doctor", "--json", RELAY_STORE=f"file://{tmp_path}/nonexistent/dir").json
    address = f"file://{tmp_path}/nonexistent/dir"
    (warned,) = [row for row in found["findings"] if row["text"].startswith(f"{address}:")]
    assert not warned["ok"] and warned["advice"] and found["ok"]
    assert sorted(tmp_path.iterdir()) == before


def test_doctor_finds_nothing_wrong_with_a_default_store_before_its_first_run_and_tests_its_disk(desk: Desk) -> None:
    rows = desk("doctor", "--json").json["findings"]
    assert [row["ok"] for row in rows if "does not exist yet" in row["text"]] == [True, True]
    assert any("self-test passed" in row["text"] for row in rows)
    assert not (desk.folder / "relay_store").exists()
    desk.train(3)
    assert "does not exist" not in desk("doctor", "--run", "r").out


def test_a_store_that_cannot_be_made_is_refused(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "LOOK" in desk("doctor", code=69, RELAY_STORE=f"file://{tmp_path}/file/store").out


@pytest.mark.parametrize("command", ["status", "report", "doctor"])
def test_a_mistyped_run_is_told_what_there_is(desk: Desk, command: str) -> None:
    desk.train(3, run="sudoku_rotation")
    done = desk(command, "--run", "sudoku_rotaton", code=78)
    out = flat(done.out + done.err)
    assert "sudoku_rotaton" in out and "Did you mean sudoku_rotation?" in out
    sound = flat(desk(command, "--run", "sudoku_rotation").out)
    assert "it holds" not in sound and "file://" in sound


def test_a_store_without_runs_says_so(desk: Desk) -> None:
    desk("register", "account_1", "Ana", "--provider", "local")
    shown = desk("status")
    assert "no runs" in shown.out and desk("status", "--json").json["state"] == "new"


def test_verify_of_a_mistyped_run_or_store_says_the_same(desk: Desk) -> None:
    desk.train(3, run="sudoku_rotation")
    refused = desk("verify", "--run", "sudoku_rotaton", code=78)
    assert refused.raised(UnknownRun).run == "sudoku_rotaton" and "sudoku_rotation?" in refused.err
    refused = desk("verify", code=78, RELAY_STORE="nowhere")
    assert refused.raised(UnknownRun).absent and "nowhere" in refused.err


def test_config_show_names_the_store_that_is_used_though_nobody_set_one(desk: Desk) -> None:
    here = (desk.folder / "relay_store").as_uri()
    (line,) = [line for line in desk("config", "show").out.splitlines() if line.startswith("storage.url = ")]
    assert here in line
    found = desk("config", "show", "--json").json
    assert found["ledger_store"] == found["checkpoint_store"] == here
    assert [row["value"] for row in found["settings"] if row["key"] == "storage.url"] == [None]
    assert "storage.url = file:///x" in desk("config", "show", RELAY_STORE="file:///x").out.splitlines()


def test_of_many_runs_the_newest_are_listed() -> None:
    known = [("p", f"run_{number}") for number in range(30)] + [("q", "other")]
    assert missing("p", "xyz", known).endswith(
        "it holds: … " + ", ".join(f"run_{n}" for n in range(21, 30)) + ", q/other"
    )


def test_secrets_in_an_address_are_masked(desk: Desk) -> None:
    for command in ("status", "report", "config show"):
        done = desk(*command.split(), code=None, RELAY_STORE="file://user:hunter22@/x")
        assert "hunter22" not in done.out + done.err
