"""A run of two accounts as readers see it, on the afternoon of 2025-01-15: states, a holder, rows, views."""

from __future__ import annotations

from typing import Any

from relay.app.machine.env import Machine
from relay.core.ledger.state import Checkpoint, Holder, Link, RunState
from relay.people.status import AccountRow, RunStatus

NOW = 1_736_951_400.0
"""2025-01-15T14:30:00Z."""
MACHINE = Machine("colab", 3900.0, 720.0)
HASH = "ab" * 32


def state(**changes: Any) -> RunState:
    base = RunState(
        project="sudoku_pretrain_multiaccount",
        run="sudoku_rotation",
        run_id="0" * 32,
        ledger_store="1" * 32,
        checkpoint_store="1" * 32,
        config_hash=HASH,
        created=NOW - 90_000,
        updated=NOW - 180,
    )
    return base.model_copy(update=changes)


def trained(**changes: Any) -> RunState:
    head = Checkpoint(
        step=11_750,
        epoch=7,
        manifest="m",
        ref="r",
        sha256=HASH,
        state_hash=HASH,
        bytes=123_456,
        committed_at=NOW - 180,
    )
    links = (
        Link(
            epoch=6,
            account="account_1",
            from_step=3000,
            to_step=6600,
            started=NOW - 9000,
            seconds=3600.0,
            ended=NOW - 5400,
            end="x",
        ),
        Link(
            epoch=7,
            account="account_2",
            from_step=6600,
            to_step=11_750,
            certified="exact",
            started=NOW - 5400,
            seconds=5220.0,
            end="open",
        ),
    )
    values = {"epoch": 7, "step": 11_750, "head": head, "target_steps": 50_000, "links": links, "links_total": 7}
    return state(**(values | changes))


def holder(**changes: Any) -> Holder:
    values: dict[str, Any] = {
        "session": "2" * 32,
        "account": "account_2",
        "epoch": 7,
        "since": NOW - 600,
        "ttl_s": 180.0,
        "latest_end": NOW + 1380,
        "target_steps": 50_000,
    }
    return Holder(**(values | changes))


ROWS = (
    AccountRow("account_1", "John's Colab", "ready", 3000, 2),
    AccountRow("account_2", "Kaggle - Project 1", "active", 8750, 5),
    AccountRow("account_11", "Backup Account", "cooling", 0, 0),
)


def view(run_state: RunState | None, rows: tuple[AccountRow, ...] = ROWS, **changes: Any) -> RunStatus:
    values: dict[str, Any] = {
        "project": "sudoku_pretrain_multiaccount",
        "run": "sudoku_rotation",
        "target_steps": 1600,
        "now": NOW,
        "state": run_state,
        "sign_of_life": NOW - 30,
        "accounts": rows,
    }
    return RunStatus(**(values | changes))
