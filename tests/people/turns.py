"""A view of accounts at noon, whose turn it then is, and what such accounts are made of."""

from __future__ import annotations

from typing import Any

from relay.app.messages.handoff import Reader, Turn, propose
from relay.app.providers import shipped
from relay.core.ledger.state import Link, RunState
from relay.people.policy import Providers
from relay.people.quota import Quota
from relay.people.status import AccountRow, RunStatus

HOUR, DAY = 3600.0, 86400.0
NOON = 1_795_867_200.0
"""Saturday 2026-11-28, 12:00 UTC."""


def view(rows: tuple[AccountRow, ...] = (), **changes: Any) -> RunStatus:
    values: dict[str, Any] = {"project": "p", "run": "r", "target_steps": 100, "now": NOON, "accounts": rows}
    return RunStatus(**(values | changes))


def turn_of(
    *rows: AccountRow, reader: Reader | None = None, providers: Providers | None = None, **changes: Any
) -> Turn:
    return propose(view(rows, **changes), {}, providers or shipped(), reader)


def quota(left_s: float, resets_in: float | None = DAY) -> Quota:
    return Quota(left_s, 30 * HOUR, "estimated", NOON, None if resets_in is None else NOON + resets_in)


def link(account: str, rate: float, gpu: str, epoch: int = 1) -> Link:
    steps = round(rate * HOUR)
    return Link(
        epoch=epoch,
        account=account,
        from_step=0,
        to_step=steps,
        commits=3,
        started=NOON - 9 * DAY,
        seconds=HOUR,
        ended=NOON - 8 * DAY,
        end="budget used",
        gpu=gpu,
    )


def halted() -> RunState:
    ids = dict.fromkeys(("run_id", "ledger_store", "checkpoint_store"), "0" * 32)
    return RunState(project="p", run="r", config_hash="a" * 64, created=0.0, updated=0.0, halted="loss is nan", **ids)


def filling() -> Providers:
    """A provider whose record allows that hours be filled."""
    found = shipped()
    open_one = found.named("colab").model_copy(update={"name": "generous", "may_fill_hours": True})
    return found.model_copy(update={"providers": (*found.providers, open_one)})
