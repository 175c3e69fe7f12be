"""The application's view of a run, with the toy's measures."""

from __future__ import annotations

from functools import partial

from relay.app.dashboard import curves as dashboard_curves
from relay.app.dashboard import data
from relay.app.machine.env import Machine
from relay.app.views import report, sessiontext
from relay.core.ledger.sessionreport import SessionReport
from relay.people.status import RunStatus
from tests.core.toy import MEASURES

document = partial(data.document, measures=MEASURES)
curves = partial(dashboard_curves.curves, measures=MEASURES)


def draw(view: RunStatus, machine: Machine, ascii_only: bool = False, columns: int | None = None) -> str:
    return report.draw(view, machine, MEASURES, ascii_only, columns)


def markdown(told: SessionReport, label: str | None = None, to_type: str | None = None) -> str:
    return sessiontext.markdown(told, MEASURES.headline, label, to_type)
