"""Draws the progress report as text, in UTF-8 or ASCII, from a RunStatus and the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size

from relay.app.machine.env import Machine
from relay.app.messages import links
from relay.app.messages.advice import command
from relay.app.messages.resting import rest_of
from relay.app.messages.shared import evaluation_lines, target_line, untested_line
from relay.app.messages.wording import duration, iso, numbers, printable
from relay.app.terminal.cells import fold, in_ascii
from relay.app.views.status import status_document
from relay.core.ledger.state import RunState
from relay.core.ledger.target import newest_change
from relay.core.workload import Measures
from relay.people.status import AccountRow, RunStatus, seconds_left
from relay.people.zones import local, stamp

INSIDE, LEAST_INSIDE = 60, 38
"""Columns between the sides of the box: usual, and least in a narrow terminal."""
NAME = 14
"""Columns of an account's id, in all but the narrowest box."""
ROOM = 10
"""Columns of a state in the guide's line; a state with one more letter takes the blank before it."""
TITLE = "MULTI-ACCOUNT TRAINING PROGRESS REPORT"
_NO_ADDRESS = " (its address is left out)"
UTF8 = {"top": "╔═╗", "middle": "╠═╣", "rule": "╟─╢", "bottom": "╚═╝", "side": "║"}
ASCII = {"top": "+=+", "middle": "+=+", "rule": "+-+", "bottom": "+=+", "side": "|"}


def report_document(view: RunStatus, machine: Machine) -> dict[str, Any]:
    """Return relay.report/1: the status, with accounts, pace and both clocks. Durations are seconds."""
    left = seconds_left(view)
    age = view.now - view.state.head.committed_at if view.state and view.state.head else None
    return {
        **status_document(view),
        "schema": "relay.report/1",
        "project": view.project,
        "store": view.store,
        "missing": view.missing or None,
        "percent": round(_percent(view), 1),
        "updated_at": iso(view.state.updated) if view.state else None,
        "eta_training_s": [round(s) for s in left] if left else None,
        "goodput": view.state.metrics.get("goodput") if view.state else None,
        "stall_ms": view.state.metrics.get("stall_ms") if view.state else None,
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


def draw(
    view: RunStatus, machine: Machine, measures: Measures, ascii_only: bool = False, columns: int | None = None
) -> str:
    """Draw the guide's box, and below it further facts about the run.

    Every line of the box is 62 columns wide, less in a narrower terminal.
    """
    art = ASCII if ascii_only else UTF8
    inside = INSIDE if columns is None else max(LEAST_INSIDE, min(INSIDE, columns - 2))
    layout = _layout(view.accounts, inside)
    heading = "Accounts Status (steps, sessions):" if layout.style == "narrow" else "Accounts Status:"
    lines = [
        _edge(art["top"], inside),
        _row(art, TITLE.center(inside), inside),
        _edge(art["middle"], inside),
        *(_row(art, line, inside) for text in _progress(view) for line in fold(text, inside)),
        _edge(art["middle"], inside),
        _row(art, heading, inside),
        _edge(art["rule"], inside),
        *(_row(art, text, inside) for text in _accounts(view.accounts, inside, layout)),
        _edge(art["bottom"], inside),
        *(
            line if art is UTF8 else in_ascii(line)
            for text in (*_below(view, measures), *_clocks(view, machine))
            for line in fold(text, max(inside + 2, columns or cell_len(text)))
        ),
    ]
    return "\n".join(lines)


def _progress(view: RunStatus) -> list[str]:
    lines = [
        f"Total Progress: {_percent(view):6.1f}% ({view.step:,}/{view.target:,} steps)",
        f"Last Update: {stamp(view.state.updated) if view.state else 'never'}",
    ]
    if rest := rest_of(view.state):
        lines.append(rest)
    if view.state and view.state.halted:
        lines.append(f"HALTED: {printable(view.state.halted)}")
    return lines


def _below(view: RunStatus, measures: Measures) -> list[str]:
    return [
        f"Run: {view.project} / {view.run}",
        *_given(view),
        *_target(view.state),
        *([f"Store: {view.store}{_NO_ADDRESS if view.store.endswith('://') else ''}"] if view.store else []),
        *([f"Not begun: {view.missing}"] if view.missing else []),
        f"ETA: {_eta(view)}",
        f"Lease: {_lease(view)}",
        f"Safe checkpoint: {_safe(view)}",
        *_worth(view.state, measures),
        *filter(None, [untested_line(view.untested)]),
        *_goodput(view.state),
        *_links(view.state),
    ]


def _given(view: RunStatus) -> list[str]:
    """Explain why the accounts' steps exceed this run's steps, if they do.

    The box counts steps in all runs of the store, and repeated steps each time.
    """
    state, given = view.state, sum(row.steps for row in view.accounts)
    stands = view.step - (state.origin.step if state and state.origin else 0)
    if given <= stands:
        return []
    if given > sum(one.steps for one in (state.usage.values() if state else ())):
        return ["Accounts: their steps and sessions are those of all runs of this store"]
    return ["Accounts: steps that were trained again, after damage, count each time"]


def _target(state: RunState | None) -> list[str]:
    """Return the newest change of the target."""
    change = newest_change(state) if state else None
    return [target_line(change)] if change else []


def _percent(view: RunStatus) -> float:
    return min(100.0, 100.0 * view.step / view.target) if view.target else 0.0


def _eta(view: RunStatus) -> str:
    if view.step >= view.target > 0:
        return "target reached"
    if view.stopped:
        return f"none: the run is {view.phase}"
    left = seconds_left(view)
    if left is None:
        return "unknown until a session has trained"
    short, long = duration(left[0]), duration(left[1])
    return f"{short} of training left" if short == long else f"{short} to {long} of training left"


def _lease(view: RunStatus) -> str:
    if view.holder is None:
        return f"none: the run is {view.phase}" if view.stopped else "free"
    if not view.training:
        return f"run out ({view.holder.account}, epoch {view.holder.epoch})"
    return f"{view.holder.account}, epoch {view.holder.epoch}, until {local(view.expires_at)}"


def _safe(view: RunStatus) -> str:
    if view.state is None or view.state.head is None:
        return "none any more: the run is deleted" if view.phase == "deleted" else "none yet"
    head = view.state.head
    return f"step {head.step:,}, {duration(view.now - head.committed_at)} old"


def _worth(state: RunState | None, measures: Measures) -> list[str]:
    """Return the newest and the best evaluation. Before the first one, return the newest training metrics."""
    evaluated = evaluation_lines(state, measures.headline) if state else []
    if evaluated:
        return evaluated
    shown = numbers(state.metrics, measures.short).strip() if state else ""
    return [f"Training: {shown}"] if shown else []


def _goodput(state: RunState | None) -> list[str]:
    """Return goodput and stall from the newest commit; empty if it has neither."""
    metrics = state.metrics if state else {}
    lines = []
    if "goodput" in metrics:
        lines.append(
            f"Goodput: {metrics['goodput']:.0%} of the session until the last commit was spent in training steps"
        )
    if "stall_ms" in metrics:
        lines.append(f"Stall: a checkpoint delays training by {metrics['stall_ms']:,.0f} ms")
    return lines


def _links(state: RunState | None) -> list[str]:
    """Return the links; empty before a second session, because the first one follows none."""
    if state is None or state.links_total < 2:
        return []
    last = links.last(state.links)
    return [f"Links: {links.counts(state.links, state.links_total)}", *([f"Last link: {last}"] if last else [])]


@dataclass(frozen=True)
class Layout:
    """Layout of an account's line: its blanks, and the column widths over all accounts."""

    style: Literal["wide", "tight", "narrow"]
    name: int
    steps: int
    sessions: int

    def line(self, row: AccountRow) -> str:
        """Return one account's line."""
        name = set_cell_size(printable(row.id), self.name)
        steps, sessions = f"{row.steps:>{self.steps},}", f"{row.sessions:>{self.sessions},}"
        if self.style == "wide":
            blank = " " if len(row.state) <= ROOM else ""
            return f"{name} | Steps: {steps} | Sessions: {sessions} |{blank}{row.state}"
        if self.style == "tight":
            return f"{name}| Steps: {steps}| Sessions: {sessions}|{row.state}"
        return f"{name}|{steps}|{sessions}|{row.state}"


def _accounts(rows: Sequence[AccountRow], inside: int, layout: Layout) -> list[str]:
    if not rows:
        return fold(f"none yet: {command('register account_1 LABEL')}", inside)
    return [layout.line(row) for row in rows]


def _layout(rows: Sequence[AccountRow], inside: int) -> Layout:
    """Return the first layout that fits every account: the guide's, fewer blanks, no words and a longer name."""
    steps = max((len(f"{row.steps:,}") for row in rows), default=0)
    sessions = max((len(f"{row.sessions:,}") for row in rows), default=0)
    styles: tuple[Literal["wide", "tight"], ...] = ("wide", "tight")
    for style in styles:
        layout = Layout(style, NAME, max(7, steps), max(3, sessions))
        if all(cell_len(layout.line(row)) <= inside for row in rows):
            return layout
    layout = Layout("narrow", 0, max(8, steps), max(4, sessions))
    longest = max(cell_len(layout.line(row)) for row in rows)
    return replace(layout, name=max(1, inside - longest))


def _clocks(view: RunStatus, machine: Machine) -> list[str]:
    lines = [f"Now: {local(view.now)} (this machine's clock)"] if view.clock_is_local else []
    if view.training and view.holder and view.holder.latest_end is not None:
        end = view.holder.latest_end
        lines.append(f"Session clock: this session ends by {local(end)} ({duration(end - view.now)} left)")
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


def _edge(parts: str, inside: int) -> str:
    return parts[0] + parts[1] * inside + parts[2]


def _row(art: dict[str, str], text: str, inside: int) -> str:
    return art["side"] + set_cell_size(text if art is UTF8 else in_ascii(text), inside) + art["side"]
