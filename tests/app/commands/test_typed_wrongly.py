"""An unregistered account id: new ones are made, but a person who mistyped theirs gets a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.cli import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "desk")
    desk.train(3, account="account_1")
    return desk


def test_a_new_account_whose_id_is_like_another_s_names_that_one(desk: Desk) -> None:
    assert (
        "NEW account account_9 (this store also knows account_1): owner"
        in desk("run", "--run", "r", "--account", "account_9", "--target-steps", "6").err
    )
    assert "NEW account zebra: owner" in desk("run", "--run", "r", "--account", "zebra", "--target-steps", "9").err


def test_a_forgotten_id_is_never_proposed(desk: Desk) -> None:
    desk("accounts", "forget", "account_1")
    told = desk("run", "--run", "r", "--account", "account_9", "--target-steps", "6").err
    assert "NEW account account_9:" in told


def test_an_unknown_account_on_a_finished_run_is_told_and_still_exits_with_0(desk: Desk) -> None:
    done = desk("run", "--run", "r", "--account", "account_9", "--target-steps", "3")
    assert "No account account_9 is registered (did you mean account_1?)." in done.out
    assert (
        "No account nobody is registered."
        in desk("run", "--run", "r", "--account", "nobody", "--target-steps", "3").out
    )
    assert "registered" not in desk("run", "--run", "r", "--account", "account_1", "--target-steps", "3").out


def test_registering_what_a_session_had_registered_says_that_it_is_labelled_now(desk: Desk) -> None:
    words = ("register", "account_1", "John's Colab")
    assert "account_1 was registered by its first session; now it gets its label" in desk(*words).err
    assert "first session" not in desk(*words).err
    assert "first session" not in desk("register", "account_2", "Ana", "--owner", "Ana", "--provider", "local").err


def test_a_bad_id_is_refused_before_anything_is_inferred(desk: Desk) -> None:
    refused = desk("register", "bad id", "x", code=78).err
    assert "Try bad_id" in refused and "inferred" not in refused
