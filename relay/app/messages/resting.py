"""What people read of a run that nobody may train: why, and what helps."""

from __future__ import annotations

from relay.app.messages.advice import command
from relay.core.ledger.atrest import RunArchived, RunDeleted, RunHalted, deletable_at
from relay.core.ledger.state import RunState
from relay.people.zones import local


def told(error: RunDeleted | RunArchived | RunHalted) -> tuple[str, str]:
    """What keeps everybody from training the run, and what helps."""
    name = f"{error.project}/{error.run}"
    match error:
        case RunDeleted():
            return (
                f"Run {name} was deleted on {local(error.at)} at step {error.step:,}.",
                "Its ledger stays, so that nobody begins it again at step 0 by mistake. Choose another run name "
                "(RUN_NAME=NAME).",
            )
        case RunArchived():
            return (
                f"Run {name} was archived on {local(error.at)} and does not train.",
                f"`{command(f'runs unarchive {error.run}')}` brings it back; `{command('fork', error.run)} --to NAME` "
                f"begins another run from it.",
            )
        case RunHalted():
            return f"Run {name} is halted and trains no more.", error.advice


def both(error: RunDeleted | RunArchived | RunHalted) -> str:
    """The same as one paragraph."""
    return " ".join(told(error))


def rest_of(state: RunState | None) -> str:
    """A line for reports: that the run rests, and since when; empty for one that may train."""
    if state is None or state.archived is None:
        return ""
    if state.deleted is not None:
        return f"DELETED on {local(state.deleted)}: nothing of it can be trained or read any more."
    since, until = local(state.archived), local(deletable_at(state))
    return f"ARCHIVED on {since}: nobody trains it; it may be deleted from {until} on."
