"""Runs that nobody may train: why, what helps, and when an archived one may be deleted; pure, knows no store."""

from __future__ import annotations

from relay.app.messages.advice import command
from relay.core.errors import BadData, PolicyRefused
from relay.core.ledger.frozen import WAIT_S
from relay.core.ledger.state import RunState
from relay.people.zones import local


def stopped(state: RunState) -> tuple[str, str] | None:
    """What keeps everybody from training the run, and what helps; None for any other run."""
    if state.deleted is not None:
        return (
            f"Run {state.project}/{state.run} was deleted on {local(state.deleted)} at step {state.step:,}.",
            "Its ledger stays, so that nobody begins it again at step 0 by mistake. Choose another run name "
            "(RUN_NAME=NAME).",
        )
    if state.archived is not None:
        return (
            f"Run {state.project}/{state.run} was archived on {local(state.archived)} and does not train.",
            f"`{command(f'runs unarchive {state.run}')}` brings it back; `{command('fork', state.run)} --to NAME` "
            f"begins another run from it.",
        )
    if state.halted is not None:
        return f"Run {state.project}/{state.run} is halted and trains no more.", state.halted
    return None


def refuse_halted(state: RunState) -> None:
    """Raises BadData (65) for a halted run with the advice it holds, PolicyRefused (77) for one that rests."""
    if told := stopped(state):
        kind = BadData if state.archived is None and state.deleted is None else PolicyRefused
        raise kind(" ".join(told))


def refuse_resting(state: RunState) -> None:
    """Raises PolicyRefused (77) if the run is archived or deleted, with what brings it back."""
    if state.archived is not None or state.deleted is not None:
        refuse_halted(state)


def refuse_deleted(state: RunState) -> None:
    """Raises PolicyRefused (77) if the run was deleted: its name stays taken."""
    if state.deleted is not None:
        refuse_halted(state)


def deletable_at(state: RunState, shown: float = 0.0) -> float | None:
    """Store time from which a run may be deleted; None: it has to be archived first, or was deleted.

    `shown` is since when others can see that it is archived, where that is known.
    """
    return None if state.archived is None or state.deleted is not None else max(state.archived, shown) + WAIT_S


def rest_of(state: RunState | None) -> str:
    """A line for reports: that the run rests, and since when; empty for one that may train."""
    if state is None or state.archived is None:
        return ""
    if state.deleted is not None:
        return f"DELETED on {local(state.deleted)}: nothing of it can be trained or read any more."
    since, until = local(state.archived), local(deletable_at(state))
    return f"ARCHIVED on {since}: nobody trains it; it may be deleted from {until} on."
