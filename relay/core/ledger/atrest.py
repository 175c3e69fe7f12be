"""Refuses runs that are halted, archived or deleted, and decides when an archived one may be deleted. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from relay.core.errors import BadData, PolicyRefused
from relay.core.ledger import frozen
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.frozen import NON_FINITE, RESUMED, WAIT_S
from relay.core.ledger.state import Failure, RunState


class RunDeleted(PolicyRefused):
    """The run was deleted; its ledger stays, and its name stays taken."""

    def __init__(self, project: str, run: str, at: float, step: int) -> None:
        super().__init__(f"Run {project}/{run} was deleted at step {step:,}.")
        self.project, self.run, self.at, self.step = project, run, at, step


class RunArchived(PolicyRefused):
    """The run is archived; it does not train until it is unarchived."""

    def __init__(self, project: str, run: str, at: float) -> None:
        super().__init__(f"Run {project}/{run} is archived and does not train.")
        self.project, self.run, self.at = project, run, at


class RunHalted(BadData):
    """The run is halted; `advice` is the text in its ledger."""

    def __init__(self, project: str, run: str, advice: str) -> None:
        super().__init__(f"Run {project}/{run} is halted and trains no more.")
        self.project, self.run, self.advice = project, run, advice


def stopped(state: RunState) -> RunDeleted | RunArchived | RunHalted | None:
    """The error that no session may train the run; None if sessions may."""
    if state.deleted is not None:
        return RunDeleted(state.project, state.run, state.deleted, state.step)
    if state.archived is not None:
        return RunArchived(state.project, state.run, state.archived)
    return RunHalted(state.project, state.run, state.halted) if state.halted is not None else None


def refuse_halted(state: RunState) -> None:
    """Raises RunHalted (65), RunArchived or RunDeleted (77)."""
    if error := stopped(state):
        raise error


def surroundings_of(fingerprint: Mapping[str, str]) -> str:
    """The digest of an environment, as failures carry it."""
    return digest(dumps(dict(fingerprint)))


def halted_elsewhere(state: RunState, surroundings: str) -> bool:
    """Whether a session of these surroundings may resume the run, because only other surroundings failed (P10).

    Resume is exact, so a failure repeats where it happened; elsewhere it need not. Between two commits, sessions of
    each surroundings resume a run once: if different surroundings fail in turn, the run stays halted.
    """
    if state.halted is None or state.archived is not None or state.deleted is not None:
        return False
    failed = {failure.fingerprint for failure in state.failures if _halting(state.halted, failure)}
    mark = (RESUMED, state.step, frozen.halted_elsewhere(surroundings))
    tried = any((one.cause, one.step, one.text) == mark for one in state.incidents)
    return bool(failed) and surroundings not in failed and not tried


def _halting(halted: str, failure: Failure) -> bool:
    """Whether the run may have been halted by another failure equal to this one."""
    anywhere = failure.cause == NON_FINITE and f"({NON_FINITE} at step " in halted  # its step does not count
    return anywhere or halted == frozen.halted(failure.cause, failure.step)


def refuse_resting(state: RunState) -> None:
    """Raises PolicyRefused (77) if the run is archived or deleted."""
    if state.archived is not None or state.deleted is not None:
        refuse_halted(state)


def refuse_deleted(state: RunState) -> None:
    """Raises PolicyRefused (77) if the run was deleted: its name stays taken."""
    if state.deleted is not None:
        refuse_halted(state)


def deletable_at(state: RunState, shown: float = 0.0) -> float | None:
    """Store time from which a run may be deleted; None if it is not archived, or deleted already.

    `shown`: store time at which the archiving became visible to other sessions, if known.
    """
    return None if state.archived is None or state.deleted is not None else max(state.archived, shown) + WAIT_S
