"""Formats the status of a run: the relay.status/1 document, and one line of text."""

from __future__ import annotations

from typing import Any

from relay.app.messages.shared import untested_line
from relay.app.messages.wording import duration, iso, printable
from relay.core.ledger.evaluations import Evaluation, best, newest
from relay.core.ledger.state import Link, RunState
from relay.core.ledger.target import newest_change
from relay.people.status import RunStatus
from relay.people.zones import local

LINKS_SHOWN = 50
"""Links in the document; a state may hold more."""


def status_document(view: RunStatus, session: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return relay.status/1. Times are ISO-8601 UTC, sizes bytes; `head` is None before the first commit.

    `session`: what the newest session did.
    """
    state = view.state
    return {
        "schema": "relay.status/1",
        "run": view.run,
        "step": view.step,
        "target_steps": view.target,
        "target_changed": _target(state),
        "epoch": state.epoch if state else 0,
        "state": view.phase,
        "halted_reason": state.halted if state else None,
        "holder": view.holder.account if view.holder else None,
        "lease_expires_at": iso(view.expires_at),
        "head": _head(state),
        "evaluation": {
            "newest": _evaluation(newest(state)) if state else None,
            "best": _evaluation(best(state)) if state else None,
        },
        "untested": [printable(reading) for reading in view.untested],
        "links": [_link(link) for link in state.links[-LINKS_SHOWN:]] if state else [],
        "links_total": state.links_total if state else 0,
        "session": session,
    }


def status_line(view: RunStatus) -> str:
    """Return the status as one line of text."""
    line = f"{view.project}/{view.run}: {view.phase}, step {view.step:,}/{view.target:,}"
    if view.training and view.holder:
        line += f", {view.holder.account} holds the lease until {local(view.expires_at)} or longer"
    if view.state and view.state.head:
        head = view.state.head
        clock = " (this machine's clock)" if view.clock_is_local else ""
        line += f", last commit {duration(view.now - head.committed_at)} ago{clock}, state {head.state_hash[:12]}"
    line += f" ({view.store})" if view.store else ""
    line += f": {view.missing}" if view.missing else ""
    line += f". {text}" if (text := untested_line(view.untested)) else ""
    return line + (f". Halted: {view.state.halted}" if view.state and view.state.halted else "")


def _head(state: RunState | None) -> dict[str, Any] | None:
    if state is None or state.head is None:
        return None
    head = state.head
    return {
        "step": head.step,
        "epoch": head.epoch,
        "state_hash": head.state_hash,
        "bytes": head.bytes,
        "committed_at": iso(head.committed_at),
    }


def _target(state: RunState | None) -> dict[str, Any] | None:
    """Return the newest change of the target."""
    change = newest_change(state) if state else None
    return {"text": printable(change.text), "at": iso(change.at), "account": change.account} if change else None


def _evaluation(found: Evaluation | None) -> dict[str, Any] | None:
    return {"step": found.step, "score": found.score, "rows": found.rows} if found else None


def _link(link: Link) -> dict[str, Any]:
    return {
        "epoch": link.epoch,
        "account": link.account,
        "from_step": link.from_step,
        "to_step": link.to_step,
        "certified": link.certified,
    }
