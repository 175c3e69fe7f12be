"""Reports and answers describe themselves truly where a reader could misread them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.cli import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "desk")
    desk.train(3, account="account_1")
    return desk


def test_steps_that_an_account_gave_to_other_runs_are_told_as_such(desk: Desk) -> None:
    alone = desk("report", "--run", "r").out
    assert "Accounts:" not in alone
    desk("run", "--run", "other", "--account", "account_1", "--target-steps", "2", "--new")
    assert "Accounts:" in desk("report", "--run", "r").out


def test_a_report_for_others_says_that_the_address_is_missing(desk: Desk) -> None:
    told = desk("report", "--run", "r", "--redact").out
    assert "Store: file:// (" in told and str(desk.folder.parent) not in told


def test_what_an_edit_set_is_told(desk: Desk) -> None:
    told = desk("accounts", "edit", "account_1", "--tier", "pro", "--weekly-hours", "10").out
    assert told.rstrip().rpartition("Set: ")[2] == "tier, weekly hours."
    assert "Set:" not in desk("accounts", "rename", "account_1", "Another").out


def test_what_an_option_said_is_not_called_inferred(desk: Desk) -> None:
    told = desk("register", "account_2", "Kaggle", "--owner", "Ana").err
    assert "provider kaggle" in told and "owner" not in told
