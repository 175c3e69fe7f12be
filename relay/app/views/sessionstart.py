"""A session's plan, as four lines at its start, and the same for the newest session in relay.status/1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relay.app.messages.advice import command
from relay.app.messages.wording import counted, duration, printable
from relay.core.ledger.sessionreport import SessionReport
from relay.core.ledger.state import RunState


@dataclass(frozen=True)
class About:
    """A session's work, in words and numbers."""

    model: str
    batch: int
    source: str
    """Where the training data comes from: `generated`, or a file's name; empty if this machine does not know it."""
    parameters: int | None = None
    """Of the network; None if counting them would need more than the configuration."""
    rows: int | None = None
    """Training rows."""
    lacking: int = 0
    """Rows that the settings ask for and the data does not have."""
    path: str = ""
    """How steps are computed."""


@dataclass(frozen=True)
class Forecast:
    """How a device will compute steps, and how long one should take."""

    path: str
    reason: str
    """Why this path, as half a sentence."""
    step_ms: float | None = None
    """None if nothing is known."""
    basis: str = ""
    """Origin of the milliseconds: a measurement or an estimate."""
    measured: bool = False
    """On this kind of card, for this shape."""
    warning: str = ""
    """A cost that this machine's software causes."""

    @property
    def text(self) -> str:
        """'72 ms a step (measured: H200, n = 150)'."""
        if self.step_ms is None:
            return "step time unknown, printed after three steps (PACE)"
        each = f"{self.step_ms:,.0f} ms" if self.step_ms < 10_000 else f"{self.step_ms / 1000:,.0f} s"
        return f"{'' if self.measured else 'about '}{each} a step ({self.basis})"


def speed_line(forecast: Forecast, left_s: float, steps: int) -> str:
    """Expected time of a step, steps that fit, and why. left_s: of this session; infinite without a limit."""
    room = ""
    if forecast.step_ms:
        whole_s, fit = steps * forecast.step_ms / 1000, max(0.0, left_s) * 1000 / forecast.step_ms
        room = f", {counted(int(fit), 'step')} in {duration(left_s)}" if fit < steps else f", {duration(whole_s)} to go"
    return f"Speed: {forecast.text}{room}. Path: {forecast.reason}"


def schedule_line(run: str, end: int, target: int) -> str:
    """Warning that the learning rates are 0 before the target is reached. end: the last step of the schedule."""
    longer = command("fork", run, "--to", "NAME", f"total_steps={target}")
    return (
        f"RATE: the learning rates are 0 after step {end:,} (total_steps), so no step from there to the target "
        f"{target:,} changes a weight. For a longer schedule, fork the run: `{longer}`."
    )


def start_lines(run: str, step: int, target: int, about: About, device: str, processes: int, store: str) -> list[str]:
    """Run, step and target; model; data; device, path and store."""
    rows = "" if about.rows is None else f"{counted(about.rows, 'row')}, "
    size = "" if about.parameters is None else f"{counted(about.parameters, 'parameter')}, "
    path = about.path or "unknown"
    return [
        f"Run: {run}, step {step:,} of {target:,}",
        f"Model: {about.model}, {size}batch {about.batch:,}",
        f"Data: {rows}{printable(about.source)}",
        f"Device: {device}, {counted(processes, 'process', 'processes')}, path {path}, store {store}",
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
        "data": printable(about.source) if about and about.source else None,
        "device": device_of(environment) or link.gpu,
        "path": printable(path) if path else None,
        "store": store,
    }


def device_of(environment: dict[str, str]) -> str | None:
    """The GPU, otherwise the device, of a workload's fingerprint."""
    named = (environment.get("gpu"), environment.get("device"))
    return next((printable(one) for one in named if one not in (None, "", "none", "None")), None)
