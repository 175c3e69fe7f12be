"""Whose turn it is: the ready account that has given least, with a command that can be typed as it stands."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from relay.handoff import command_for, least, propose
from relay.state import RunState
from relay.status import AccountRow, View


def view(rows: tuple[AccountRow, ...] = (), **changes: Any) -> View:
    values: dict[str, Any] = {"project": "p", "run": "r", "target_steps": 100, "now": 1000.0, "accounts": rows}
    return View(**(values | changes))


def halted() -> RunState:
    ids = dict.fromkeys(("run_id", "ledger_store", "checkpoint_store"), "0" * 32)
    return RunState(project="p", run="r", config_hash="a" * 64, created=0.0, updated=0.0, halted="loss is nan", **ids)


def test_the_ready_account_that_gave_least_goes_next() -> None:
    rows = (
        AccountRow("a", "A", "ready", seconds=50.0),
        AccountRow("b", "B", "cooling", seconds=0.0),
        AccountRow("c", "C", "ready", seconds=10.0),
        AccountRow("d", "D", "blocked", seconds=0.0),
    )
    turn = propose(view(rows), {})
    assert turn.account == rows[2]
    assert turn.command == "ACCOUNT_ID=c RUN_NAME=r bash multi_account_workflow.sh"
    assert turn.command in turn.message and "10 s" in turn.why


def test_equal_accounts_take_turns_by_sessions_then_id() -> None:
    rows = [AccountRow("b", "", "ready"), AccountRow("a", "", "ready"), AccountRow("0", "", "ready", sessions=1)]
    assert least(rows).id == "a"


@pytest.mark.parametrize("rows", [(), (AccountRow("a", "A", "quota_exceeded"),)])
def test_nobody_ready_says_what_to_do(rows: tuple[AccountRow, ...]) -> None:
    turn = propose(view(rows), {})
    assert turn.account is None and turn.document()["command"] is None and "register" in turn.message


def test_a_halted_run_has_no_next() -> None:
    turn = propose(view((AccountRow("a", "A", "ready"),), state=halted()), {})
    assert turn.account is None and "loss is nan" in turn.message


def test_a_store_address_is_quoted_and_carries_no_secret() -> None:
    command = command_for("a", "r", {"RELAY_STORE": "s3://key:hunter22@host/a b"})
    assert "hunter22" not in command
    assert shlex.split(command)[2] == "RELAY_STORE=s3://***@host/a b"


def test_hostile_labels_cannot_break_the_message() -> None:
    turn = propose(view((AccountRow("a", "\x1b[2J\n$(rm -rf /)", "ready"),)), {})
    assert "\x1b" not in turn.message and turn.message.count("\n") == 1
    assert turn.command == "ACCOUNT_ID=a RUN_NAME=r bash multi_account_workflow.sh"


def test_two_stores_are_both_passed_on() -> None:
    stores = {"RELAY_LEDGER_STORE": "/ledger", "RELAY_CHECKPOINT_STORE": "/big disk"}
    words = shlex.split(propose(view((AccountRow("a", "A", "ready"),)), stores).command)
    assert words[2:4] == ["RELAY_LEDGER_STORE=/ledger", "RELAY_CHECKPOINT_STORE=/big disk"]
