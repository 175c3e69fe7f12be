"""One account's state from its row, hours and lease, case by case; test_accountstate_machine.py has the ways."""

from __future__ import annotations

import pytest

from relay.app.messages.accounts import why_text
from relay.core.ledger.registry import Row, Status
from relay.people.accountstate import effective
from relay.people.quota import Quota
from relay.people.status import AccountRow

NOW = 1.7e9
USED = Quota(0.0, 3600.0, "declared", NOW - 60, NOW + 60)
LEFT = Quota(1.0, 3600.0, "declared", NOW - 60, NOW + 60)
FOR_EVER = Quota(0.0, 3600.0, "declared", NOW - 60, None)


def row(state: Status, until: float | None = None) -> Row:
    return Row(sha256="0" * 64, state=state, until=until)


@pytest.mark.parametrize(
    ("declared", "quota", "training", "state", "until"),
    [
        (row("ready"), None, False, "ready", None),
        (row("ready"), LEFT, False, "ready", None),
        (row("ready"), USED, False, "cooling", NOW + 60),
        (row("ready"), FOR_EVER, False, "cooling", None),
        (row("ready"), USED, True, "active", None),
        (row("blocked"), LEFT, True, "active", None),
        (row("paused"), USED, False, "paused", None),
        (row("paused", NOW + 1), LEFT, False, "paused", NOW + 1),
        (row("paused", NOW), LEFT, False, "ready", None),
        (row("paused", NOW), USED, False, "cooling", NOW + 60),
        (row("quota_exceeded", NOW + 1), None, False, "quota_exceeded", NOW + 1),
        (row("quota_exceeded", NOW), None, False, "ready", None),
        (row("quota_exceeded"), LEFT, False, "quota_exceeded", None),
        (row("cooling", NOW + 1), LEFT, False, "cooling", NOW + 1),
        (row("blocked", NOW - 1), LEFT, False, "blocked", None),
        (row("retired", NOW - 1), LEFT, False, "retired", None),
        (row("forgotten", NOW - 1), None, False, "forgotten", None),
    ],
)
def test_the_state_now(declared: Row, quota: Quota | None, training: bool, state: str, until: float | None) -> None:
    found = effective(declared, quota, training, NOW)
    assert (found.state, found.until) == (state, until)
    why = why_text(AccountRow("a", "A", found.state, until=found.until, why=found.why, quota=quota))
    by_hand = state in ("paused", "quota_exceeded", "blocked", "retired") and until is None
    assert (" mark a " in why) == by_hand
    assert ("--left" in why) == (state == "cooling" and until is None)
    assert bool(why) == bool(found.why) == (state != "ready")
