"""Reports a session's end as text or JSON, and exits with its code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import typer

from relay.app.commands.common import App, emit
from relay.app.messages.events import NOTABLE_S
from relay.app.messages.links import briefly
from relay.app.messages.wording import counted, duration
from relay.app.terminal.mishaps import tell
from relay.core.errors import Exit
from relay.core.session.context import Outcome
from relay.core.session.ending import NotCommitted

PLANNED = (Exit.OK, Exit.HANDOFF, Exit.SIGINT, Exit.SIGTERM)
"""Exit codes that are not errors."""


@dataclass(frozen=True)
class Ended:
    """The outcome of a session and its message for the user."""

    outcome: Outcome
    message: str


def finish(app: App, ended: Ended, as_json: bool, schema: str) -> None:
    """Print the outcome and exit with its code."""
    code = ended.outcome.exit_code
    if code in PLANNED:
        emit(as_json, document(ended, schema), sentence(ended))
    else:
        tell(int(code), sentence(ended), None, as_json, app.secrets)
    raise typer.Exit(int(code))


def document(ended: Ended, schema: str) -> dict[str, Any]:
    """Return the outcome as a document; durations in seconds."""
    outcome = ended.outcome
    return {
        "schema": schema,
        "exit_code": int(outcome.exit_code),
        "message": ended.message,
        "from_step": outcome.from_step,
        "durable_step": outcome.durable_step,
        "untested": list(outcome.untested),
        "epoch": outcome.epoch,
        "commits": outcome.commits,
        "certified": outcome.certified,
        "why": outcome.why,
        "commit_interval_s": round(outcome.interval_s, 3),
        "snapshot_to_commit_s": round(outcome.latency_s, 3),
        "snapshots_replaced": outcome.replaced,
        "stall_s": _stalls(outcome.stall_s),
        "train_s": round(outcome.train_s, 3),
        "session_s": round(outcome.total_s, 3),
        "start_s": round(outcome.start_s, 3),
        "waited_s": round(outcome.waited_s, 3),
        "goodput": round(outcome.goodput, 4),
        "startup": dict(outcome.startup),
        "unsent": str(outcome.unsent) if outcome.unsent else None,
    }


def _stalls(seconds: Sequence[float]) -> dict[str, float] | None:
    """Return the delays of training by checkpoints in seconds; None if none was measured."""
    if not seconds:
        return None
    return {"median": round(median(seconds), 4), "most": round(max(seconds), 4), "n": len(seconds)}


def sentence(ended: Ended) -> str:
    """Describe the end of a session: the steps, the durable step, and the work that a kill could have cost.

    The message of a step that is not committed ends with a command, so it comes last: people copy the command.
    """
    facts = _facts(ended.outcome)
    uncommitted = isinstance(ended.outcome.failure, NotCommitted)
    return f"{facts} {ended.message}" if uncommitted else f"{ended.message} {facts}"


def _facts(outcome: Outcome) -> str:
    if outcome.made_step is None or outcome.exit_code == Exit.FENCED:  # the durable step may come from another session
        return f"Durable step: {_step(outcome)}."
    link = briefly(outcome.certified, outcome.why)
    slow = outcome.start_s > min(NOTABLE_S, outcome.total_s / 10)  # so that the goodput matches the printed times
    start = f", after {duration(outcome.start_s)} of starting up" if slow else ""
    return (
        f"Steps {outcome.from_step:,} to {outcome.made_step:,} in {duration(outcome.total_s)} "
        f"({duration(outcome.train_s)} of training{start}, goodput {outcome.goodput:.0%}), "
        f"{counted(outcome.commits, 'commit')}; a kill could have cost at most "
        f"{duration(outcome.interval_s + outcome.latency_s)} of work.{f' {link}' if link else ''} "
        f"Durable step: {_step(outcome)}."
    )


def _step(outcome: Outcome) -> str:
    return "unknown, the ledger could not be read" if outcome.durable_step is None else f"{outcome.durable_step:,}"
