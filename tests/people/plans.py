"""Views, sessions and courses of which plans are made, for tests."""

from __future__ import annotations

from typing import Any

from relay.app.providers import shipped
from relay.app.views.plan import Look, Plan, plan_of
from relay.core.ledger.state import Link
from relay.people.participants import Assumptions
from relay.people.plan import Forecast, forecast
from relay.people.presets import PRESETS
from relay.people.quota import Quota
from relay.people.status import AccountRow, RunStatus
from relay.people.team import Scenario
from tests.people.views import trained

NOW, HOUR, DAY = 1_795_867_200.0, 3600.0, 86400.0
PLAIN = Look(columns=100)


def link(account: str, epoch: int, rate: float = 2.0, hours: float = 1.0, **changes: Any) -> Link:
    """A session that ended some days ago, ten minutes after the one before."""
    started = NOW - 9 * DAY + epoch * (hours * HOUR + 600)
    values: dict[str, Any] = {
        "epoch": epoch, "account": account, "from_step": 0, "to_step": round(rate * hours * HOUR), "commits": 3,
        "started": started, "seconds": hours * HOUR, "ended": started + hours * HOUR, "end": "budget used",
    }  # fmt: skip
    return Link(**(values | changes))


def view(*rows: AccountRow, links: tuple[Link, ...] = (), step: int = 10_000, **changes: Any) -> RunStatus:
    state = trained(epoch=9, step=step, target_steps=50_000, links=links, holder=None, metrics={})
    values: dict[str, Any] = {
        "project": "p", "run": "r", "target_steps": 50_000, "now": NOW, "state": state, "accounts": rows,
    }  # fmt: skip
    return RunStatus(**(values | changes))


def planned(seen: RunStatus, wish: Assumptions | None = None, zone: str = "UTC", look: Look = PLAIN) -> Plan:
    return plan_of(seen, shipped(), wish or Assumptions(), zone, look)


KAGGLE = AccountRow(
    "k", "Kaggle", "ready", provider="kaggle", session_minutes=720.0, weekly_hours=30.0, gpu="T4",
    quota=Quota(5 * HOUR, 30 * HOUR, "estimated", NOW, NOW + 12 * HOUR),
)  # fmt: skip
OWN = AccountRow("own", "Lab", "ready", provider="lab", session_minutes=60.0)


def of(course_: Scenario) -> Forecast:
    found = forecast(course_)
    assert found is not None
    return found


def preset(name: str, startup_s: float | None = None, fails: float | None = None) -> Forecast:
    found = forecast(PRESETS[name].course(NOW, None, startup_s, fails))
    assert found
    return found
