"""A session's report as the store holds it, and one made up."""

from __future__ import annotations

import json

from relay.core.ledger.sessionreport import SessionReport, decode
from tests.core.lab import PROJECT, RUN, Lab
from tests.core.making import NAMES


def stored(lab: Lab, epoch: int = 1) -> SessionReport | None:
    """The objects in the store from the session of that epoch."""
    found = [one for one in lab.shared.list(f"runs/{PROJECT}/{RUN}/sessions/") if int(one.name[-25:-5]) == epoch]
    return decode(lab.shared.get(found[0].ref)) if found else None


def report(**changes: object) -> SessionReport:
    plain = {
        "project": NAMES.project, "run": NAMES.run, "run_id": "1" * 32, "epoch": 3, "account": "ana",
        "config_hash": "c" * 64, "started": 1.7e9, "wall_s": 100.0, "lease_s": 90.0, "phases": {"train": 100.0},
        "from_step": 0, "to_step": 10, "goodput": 0.9, "commits": 1, "certified": "exact", "exit_code": 75,
        "end": "budget used", "at_risk_s": 5.0,
    }  # fmt: skip
    return SessionReport.model_validate_json(json.dumps({**plain, **changes}))
