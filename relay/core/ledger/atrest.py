"""Runs that nobody may train: why, and when an archived one may be deleted; pure, knows no store."""

from __future__ import annotations

from relay.core.errors import BadData, PolicyRefused
from relay.core.ledger.frozen import WAIT_S
from relay.core.ledger.state import RunState

# --- Runs that nobody may train: why, and when an archived one may be deleted ---------------------------------------


class RunDeleted(PolicyRefused):
    """The run was deleted: its ledger stays, and its name stays taken."""

    def __init__(self, project: str, run: str, at: float, step: int) -> None:
        super().__init__(f"Run {project}/{run} was deleted at step {step:,}.")
        self.project, self.run, self.at, self.step = project, run, at, step


class RunArchived(PolicyRefused):
    """The run is archived: it does not train before it is brought back."""

    def __init__(self, project: str, run: str, at: float) -> None:
        super().__init__(f"Run {project}/{run} is archived and does not train.")
        self.project, self.run, self.at = project, run, at


class RunHalted(BadData):
    """The run is halted, with the advice that its ledger holds."""

    def __init__(self, project: str, run: str, advice: str) -> None:
        super().__init__(f"Run {project}/{run} is halted and trains no more.")
        self.project, self.run, self.advice = project, run, advice


def stopped(state: RunState) -> RunDeleted | RunArchived | RunHalted | None:
    """What keeps everybody from training the run; None for any other run."""
    if state.deleted is not None:
        return RunDeleted(state.project, state.run, state.deleted, state.step)
    if state.archived is not None:
        return RunArchived(state.project, state.run, state.archived)
    return RunHalted(state.project, state.run, state.halted) if state.halted is not None else None


def refuse_halted(state: RunState) -> None:
    """Raises RunHalted (65), RunArchived or RunDeleted (77)."""
    if error := stopped(state):
        raise error


def refuse_resting(state: RunState) -> None:
    """Raises PolicyRefused (77) if the run is archived or deleted."""
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
