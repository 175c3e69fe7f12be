"""What a session does, as four lines at its start, and the same for the newest session in relay.status/1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relay.app.messages.wording import printable
from relay.core.ledger.sessionreport import SessionReport
from relay.core.ledger.state import RunState


@dataclass(frozen=True)
class About:
    """What a session trains, in words and numbers."""

    model: str
    batch: int
    source: str
    """Where the training data comes from: `generated`, or a file's name."""
    parameters: int | None = None
    """Of the network; None if counting them would need more than the configuration."""
    rows: int | None = None
    """Training rows."""
    lacking: int = 0
    """Rows that the settings ask for and the data does not have."""
    path: str = ""
    """How steps are computed."""


def start_lines(run: str, step: int, target: int, about: About, device: str, store: str) -> list[str]:
    """Run, step and target; model; data; device, path and store."""
    rows = "" if about.rows is None else f"{about.rows:,} rows, "
    size = "" if about.parameters is None else f"{about.parameters:,} parameters, "
    return [
        f"Run: {run}, step {step:,} of {target:,}",
        f"Model: {about.model}, {size}batch {about.batch:,}",
        f"Data: {rows}{printable(about.source)}",
        f"Device: {device}, path {about.path or 'unknown'}, store {store}",
    ]


def start_document(state: RunState, report: SessionReport | None, about: About | None, store: str) -> dict[str, Any]:
    """The newest session, as the store knows it; None for what nobody recorded. `store`: the address, masked."""
    link, head = state.links[-1], state.head
    path = head.next.path if head and head.next and head.epoch == link.epoch else None
    environment = report.environment if report else {}
    return {
        "epoch": link.epoch,
        "account": link.account,
        "from_step": link.from_step,
        "step": link.to_step,
        "target_steps": state.target_steps,
        "model": about.model if about else None,
        "parameters": about.parameters if about else None,
        "batch": about.batch if about else None,
        "rows": about.rows if about else None,
        "data": printable(about.source) if about else None,
        "device": device_of(environment) or link.gpu,
        "path": printable(path) if path else None,
        "store": store,
    }


def device_of(environment: dict[str, str]) -> str | None:
    """The GPU, otherwise the device, of a workload's fingerprint."""
    named = (environment.get("gpu"), environment.get("device"))
    return next((printable(one) for one in named if one not in (None, "", "none", "None")), None)
