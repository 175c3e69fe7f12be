"""Everything the page shows, as one bounded document (relay.dashboard/1); pure: reads no store and no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.app.dashboard.curves import curves
from relay.app.dashboard.history import Committed, Event
from relay.app.dashboard.panels import account_rows, header, incident_rows, notices, storage
from relay.app.dashboard.sessions import gpu_rows, handoff_rows, session_rows
from relay.core.ledger.sessionreport import SessionReport
from relay.core.ledger.state import Link
from relay.core.workload import Measures
from relay.people.plan import Range
from relay.people.status import View

SCHEMA = "relay.dashboard/1"


@dataclass(frozen=True)
class Seen:
    """What was read of a run."""

    view: View
    links: Sequence[Link] = ()
    """All sessions that can be listed, oldest first."""
    missing: str = ""
    """Which cannot, and why."""
    reports: Mapping[int, SessionReport] = field(default_factory=dict)
    """By epoch; those that agree with the ledger."""
    events: Sequence[Event] = ()
    unread: int = 0
    """Entries and reports that have not been read yet."""
    unreadable: int = 0
    finish: Range | None = None


def document(seen: Seen, measures: Measures) -> dict[str, Any]:
    """relay.dashboard/1. Times are unix seconds by the store's clock, durations seconds, sizes bytes."""
    view, links = seen.view, seen.links
    commits = [event for event in seen.events if isinstance(event, Committed)]
    return {
        "schema": SCHEMA,
        "project": view.project,
        "run": view.run,
        "now": view.now,
        "clock": "this machine" if view.clock_is_local else "store",
        "notices": notices(view, seen.missing, seen.unreadable),
        "header": header(view, links, seen.finish, measures.headline),
        "accounts": account_rows(view, links),
        "accounts_total": len(view.accounts),
        "sessions": session_rows(links, seen.reports),
        "sessions_total": view.state.links_total if view.state else 0,
        "gpus": gpu_rows(links),
        "curves": curves(seen.events, links, measures),
        "unread": seen.unread,
        "handoffs": handoff_rows(links, commits),
        "storage": storage(view, seen.reports),
        "incidents": incident_rows(view, links),
        "incidents_total": view.state.incidents_total if view.state else 0,
    }
