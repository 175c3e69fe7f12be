"""Formats all runs of a store as a document and as a table; reads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.app.messages.errors import paragraph
from relay.app.messages.wording import duration, iso, printable, size
from relay.app.terminal.cells import Column, table
from relay.core.ledger.atrest import deletable_at
from relay.core.runs.registered import RegisteredRun
from relay.people.status import RunStatus

NEXT = ("state", "step", "last", "size")


def document(line: RegisteredRun, now: float) -> dict[str, Any]:
    """Return one item of `runs` in relay.runs/1; sizes in bytes, times in ISO-8601 UTC."""
    view, state = _view(line, now), line.found.state if line.found else None
    return {
        "project": line.project,
        "run": line.run,
        "state": _phase(line, now),
        "step": view.step,
        "target_steps": view.target or None,
        "holder": view.holder.account if view.training and view.holder else None,
        "last_activity": iso(_last(line)),
        "checkpoint_bytes": line.bytes,
        "retained_bytes": sum(c.bytes for c in state.retained) if state else 0,
        "deletable_at": iso(deletable_at(state)) if state else None,
        "trouble": printable(paragraph(line.trouble)) or None if line.trouble else None,
    }


def runs_text(lines: Sequence[RegisteredRun], now: float, width: int | None, utf8: bool) -> str:
    """Return one row for each run, oldest first. Without a width, return plain lines."""
    if not lines:
        return "This store holds no run yet."
    if width is None:
        return "\n".join("  ".join(_cells(line, now)) for line in lines)
    projects = {line.project for line in lines}
    title = "run" if len(projects) > 1 else f"run of {lines[0].project}"
    names = [_name(line) if len(projects) > 1 else line.run for line in lines]
    columns = zip(NEXT, *(_cells(line, now)[1:] for line in lines), strict=True)
    rest = [Column(name, cells, right=name == "size") for name, *cells in columns]
    return table([Column(title, names, whole=True), *rest], width, utf8)


def _cells(line: RegisteredRun, now: float) -> tuple[str, ...]:
    view = _view(line, now)
    target = f"/{view.target:,}" if view.target else ""
    state = _phase(line, now)
    if state == "training" and view.holder:
        state = f"training ({view.holder.account})"
    seen = _last(line)
    last = "never" if seen is None else f"{duration(max(0.0, now - seen))} ago"
    return _name(line), state, f"{view.step:,}{target}", last, size(line.bytes)


def _name(line: RegisteredRun) -> str:
    return f"{line.project}/{line.run}"


def _view(line: RegisteredRun, now: float) -> RunStatus:
    """Return the view of the run."""
    state, beat = (line.found.state, line.found.heartbeat) if line.found else (None, None)
    return RunStatus(line.project, line.run, 0, now, state=state, sign_of_life=beat)


def _phase(line: RegisteredRun, now: float) -> str:
    """Return the phase as in `status`, or `unreadable` if the ledger is damaged or newer."""
    return "unreadable" if line.trouble else _view(line, now).phase


def _last(line: RegisteredRun) -> float | None:
    """Return the store time of the newest sign of life."""
    return max(line.found.state.updated, line.found.heartbeat or 0.0) if line.found else None
