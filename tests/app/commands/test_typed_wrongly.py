"""An unregistered account id: new ones are made, but a person who mistyped theirs gets a message."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.app.cli import Desk, Result


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "desk")
    desk.train(3, account="account_1")
    return desk


def new_account(done: Result) -> str:
    """The line about the account that a session registers."""
    (line,) = [line for line in done.err.splitlines() if line.startswith("NEW account ")]
    return line


def test_a_new_account_whose_id_is_like_another_s_names_that_one(desk: Desk) -> None:
    like = new_account(desk("run", "--run", "r", "--account", "account_9", "--target-steps", "6"))
    assert "account_9" in like and "account_1)" in like
    other = new_account(desk("run", "--run", "r", "--account", "zebra", "--target-steps", "9"))
    assert "zebra" in other and "account_" not in other


def test_a_person_without_a_name_gets_the_command_that_sets_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the registration, neither RELAY_OWNER nor an option of `run` names the owner."""
    monkeypatch.setattr("relay.people.inference.login_name", lambda: "root")
    line = new_account(desk("run", "--run", "r", "--account", "zebra", "--target-steps", "6"))
    words = shlex.split(line.split("`")[1].replace("NAME", "Ana"))
    assert desk(*words[2:]).code == 0
    rows = desk("accounts", "list", "--json").json["accounts"]
    assert [row["owner"] for row in rows if row["id"] == "zebra"] == ["Ana"]


def test_a_forgotten_id_is_never_proposed(desk: Desk) -> None:
    desk("accounts", "forget", "account_1")
    told = new_account(desk("run", "--run", "r", "--account", "account_9", "--target-steps", "6"))
    assert "account_9:" in told and "account_1" not in told


def test_an_unknown_account_on_a_finished_run_is_told_and_still_exits_with_0(desk: Desk) -> None:
    done = desk("run", "--run", "r", "--account", "account_9", "--target-steps", "3")
    assert "account_9" in done.out and "account_1?" in done.out
    done = desk("run", "--run", "r", "--account", "nobody", "--target-steps", "3")
    assert "nobody" in done.out and "registered" in done.out and "account_1" not in done.out
    assert "registered" not in desk("run", "--run", "r", "--account", "account_1", "--target-steps", "3").out


def test_registering_what_a_session_had_registered_says_that_it_is_labelled_now(desk: Desk) -> None:
    words = ("register", "account_1", "John's Colab")
    assert "first session" in desk(*words).err
    assert "first session" not in desk(*words).err
    assert "first session" not in desk("register", "account_2", "Ana", "--owner", "Ana", "--provider", "local").err


def test_a_bad_id_is_refused_before_anything_is_inferred(desk: Desk) -> None:
    refused = desk("register", "bad id", "x", code=78).err
    assert "Try bad_id" in refused and "inferred" not in refused
