"""Explains why a halted, archived or deleted run does not train, and the fix."""

from __future__ import annotations

from relay.app.messages.advice import command
from relay.core.ledger.atrest import RunArchived, RunDeleted, RunHalted, deletable_at
from relay.core.ledger.state import RunState
from relay.people.zones import local


def resting_parts(error: RunDeleted | RunArchived | RunHalted) -> tuple[str, str]:
    """(why the run does not train, the fix)."""
    name = f"{error.project}/{error.run}"
    match error:
        case RunDeleted():
            return (
                f"Run {name} was deleted on {local(error.at)} at step {error.step:,}.",
                "Choose another run name (RUN_NAME=NAME). The ledger stays, so that the name cannot restart at step 0 "
                "by mistake.",
            )
        case RunArchived():
            return (
                f"Run {name} was archived on {local(error.at)} and does not train.",
                f"To train it again: `{command(f'runs unarchive {error.run}')}`. To begin another run from it: "
                f"`{command('fork', error.run)} --to NAME`.",
            )
        case RunHalted():
            return f"Run {name} is halted and trains no more.", error.advice


def resting_text(error: RunDeleted | RunArchived | RunHalted) -> str:
    """The same as one paragraph."""
    return " ".join(resting_parts(error))


def rest_of(state: RunState | None) -> str:
    """A line for reports on an archived or deleted run; empty for any other."""
    if state is None or state.archived is None:
        return ""
    if state.deleted is not None:
        return f"DELETED on {local(state.deleted)}: it can no longer be trained or read."
    since, until = local(state.archived), local(deletable_at(state))
    return f"ARCHIVED on {since}: it does not train; it can be deleted from {until} on."
