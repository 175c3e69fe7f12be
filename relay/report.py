"""Draws the progress report for people, in UTF-8 or ASCII; knows only a View and the machine it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from relay.advice import command
from relay.env import Machine
from relay.redact import printable
from relay.status import AccountRow, View, seconds_left, status_document
from relay.wording import duration, iso

INSIDE = 60
"""Columns between the box's sides."""
NAME = 14
LONGEST_STATE = 10
"""A longer state (quota_exceeded) makes every row give up its blanks, so that the box keeps its width."""
TITLE = "MULTI-ACCOUNT TRAINING PROGRESS REPORT"
UTF8 = {"top": "╔═╗", "middle": "╠═╣", "rule": "╟─╢", "bottom": "╚═╝", "side": "║"}
ASCII = {"top": "+=+", "middle": "+=+", "rule": "+-+", "bottom": "+=+", "side": "|"}


def report_document(view: View, machine: Machine) -> dict[str, Any]:
    """relay.report/1: the status, with accounts, pace and both clocks. Durations are seconds."""
    left = seconds_left(view)
    age = view.now - view.state.head.committed_at if view.state and view.state.head else None
    return {
        **status_document(view),
        "schema": "relay.report/1",
        "project": view.project,
        "percent": round(_percent(view), 1),
        "updated_at": iso(view.state.updated) if view.state else None,
        "eta_training_s": [round(s) for s in left] if left else None,
        "safe_checkpoint_age_s": None if age is None else round(age),
        "now": iso(view.now),
        "clock": "this machine" if view.clock_is_local else "store",
        "session_ends_at": iso(view.holder.latest_end) if view.training and view.holder else None,
        "machine": {
            "provider": machine.provider,
            "age_s": None if machine.age_s is None else round(machine.age_s),
            "limit_minutes": machine.limit_minutes,
        },
        "accounts": [_account(row) for row in view.accounts],
    }


def draw(view: View, machine: Machine, ascii_only: bool = False) -> str:
    """The box, and below it both clocks. Every line of the box is 62 columns wide."""
    art = ASCII if ascii_only else UTF8
    lines = [
        _edge(art["top"]),
        _row(art, TITLE.center(INSIDE)),
        _edge(art["middle"]),
        *(_row(art, text) for text in _progress(view)),
        _edge(art["middle"]),
        _row(art, "Accounts Status:"),
        _edge(art["rule"]),
        *(_row(art, text) for text in _accounts(view.accounts)),
        _edge(art["bottom"]),
        *_clocks(view, machine),
    ]
    return "\n".join(lines)


def _progress(view: View) -> list[str]:
    lines = [
        f"Run: {view.project} / {view.run}",
        f"Total Progress: {_percent(view):6.1f}% ({view.step:,}/{view.target:,} steps)",
        f"Last Update: {iso(view.state.updated) if view.state else 'never'}",
        f"ETA: {_eta(view)}",
        f"Lease: {_lease(view)}",
        f"Safe checkpoint: {_safe(view)}",
    ]
    if view.state and view.state.halted:
        lines.append(f"HALTED: {printable(view.state.halted)}")
    return lines


def _percent(view: View) -> float:
    return min(100.0, 100.0 * view.step / view.target) if view.target else 0.0


def _eta(view: View) -> str:
    if view.step >= view.target > 0:
        return "target reached"
    left = seconds_left(view)
    if left is None:
        return "unknown until a session has trained"
    short, long = duration(left[0]), duration(left[1])
    return f"{short} of training left" if short == long else f"{short} to {long} of training left"


def _lease(view: View) -> str:
    if view.holder is None:
        return "free"
    if not view.training:
        return f"run out ({view.holder.account}, epoch {view.holder.epoch})"
    return f"{view.holder.account}, epoch {view.holder.epoch}, until {iso(view.expires_at)}"


def _safe(view: View) -> str:
    if view.state is None or view.state.head is None:
        return "none yet"
    head = view.state.head
    return f"step {head.step:,}, {duration(view.now - head.committed_at)} old"


def _accounts(rows: Sequence[AccountRow]) -> list[str]:
    if not rows:
        return [f"none yet: {command('register account_1 LABEL')}"]
    tight = any(cell_len(row.state) > LONGEST_STATE for row in rows)
    return [_account_line(row, tight) for row in rows]


def _account_line(row: AccountRow, tight: bool) -> str:
    name = set_cell_size(printable(row.id), NAME)
    if tight:
        return f"{name}| Steps: {row.steps:>7,}| Sessions: {row.sessions:>3}|{row.state}"
    return f"{name} | Steps: {row.steps:>7,} | Sessions: {row.sessions:>3} | {row.state}"


def _clocks(view: View, machine: Machine) -> list[str]:
    lines = [f"Now: {iso(view.now)} (this machine's clock)"] if view.clock_is_local else []
    if view.training and view.holder and view.holder.latest_end is not None:
        end = view.holder.latest_end
        lines.append(f"Session clock: this session ends by {iso(end)} ({duration(end - view.now)} left)")
    elif view.training:
        lines.append("Session clock: no budget set")
    up = "start unknown" if machine.age_s is None else f"up {duration(machine.age_s)}"
    limit = "no known limit" if machine.limit_minutes is None else f"limit {duration(machine.limit_minutes * 60)}"
    return [*lines, f"Machine clock: this machine ({machine.provider}) is {up}, {limit}"]


def _account(row: AccountRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "label": printable(row.label),
        "state": row.state,
        "steps": row.steps,
        "sessions": row.sessions,
        "seconds": round(row.seconds, 1),
    }


def _edge(parts: str) -> str:
    return parts[0] + parts[1] * INSIDE + parts[2]


def _row(art: dict[str, str], text: str) -> str:
    shown = text if art is UTF8 else "".join(c if c.isascii() else "?" * cell_len(c) for c in text)
    return art["side"] + set_cell_size(shown, INSIDE) + art["side"]
