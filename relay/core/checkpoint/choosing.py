"""Which retained checkpoint is meant, and what it is to its run; pure, knows no store."""

from __future__ import annotations

from relay.core.errors import BadData
from relay.core.ledger.resting import refuse_deleted
from relay.core.ledger.state import Checkpoint, RunState


class NoCheckpoint(BadData):
    """The run has not committed yet."""

    def __init__(self, run: str) -> None:
        super().__init__(f"Run {run} has no checkpoint yet.")
        self.run = run


class NotRetained(BadData):
    """The run retains other checkpoints than the one that was asked for."""

    def __init__(self, run: str, step: int | None, epoch: int | None, retained: tuple[int, ...]) -> None:
        steps = ", ".join(f"{one:,}" for one in retained)
        of = ([f"step {step:,}"] if step is not None else []) + ([f"epoch {epoch}"] if epoch is not None else [])
        super().__init__(f"Run {run} retains no checkpoint of {' and '.join(of)}; it retains {steps}.")
        self.run, self.step, self.epoch, self.retained = run, step, epoch, retained


def choose(state: RunState, step: int | None, epoch: int | None = None) -> Checkpoint:
    """The head, or the newest undamaged retained checkpoint of a step, or that of an epoch. Raises BadData naming the
    steps there are."""
    refuse_deleted(state)
    if state.head is None:
        raise NoCheckpoint(state.run)
    if step is None and epoch is None:
        return state.head
    found = [c for c in state.undamaged if step in (None, c.step) and epoch in (None, c.epoch)]
    if not found:
        raise NotRetained(state.run, step, epoch, tuple(c.step for c in state.undamaged))
    return found[-1]


def role(state: RunState, checkpoint: Checkpoint) -> str:
    """Which checkpoint of the run this is: the final one, the best on validation, or another retained one."""
    if state.head and checkpoint.key == state.head.key:
        return "newest checkpoint"
    return "best on validation" if checkpoint.key == state.best else "retained checkpoint"
