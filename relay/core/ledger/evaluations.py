"""The newest and the best evaluation of a run.

Retention deletes evaluated checkpoints, so each commit carries the newest evaluation among its metrics. The best
checkpoint is never retired.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay.core.ledger.frozen import EVALUATED_ROWS, EVALUATED_SCORE, EVALUATED_STEP, WHOLE
from relay.core.ledger.state import Checkpoint, RunState


@dataclass(frozen=True)
class Evaluation:
    """The validation of one step."""

    step: int
    score: float
    """The headline as a score: larger is better."""
    rows: int | None = None
    """Number of validation rows; None if unknown."""

    def metrics(self) -> dict[str, float]:
        """The form in which a commit carries it."""
        rows = {} if self.rows is None else {EVALUATED_ROWS: float(self.rows)}
        return {EVALUATED_STEP: float(self.step), EVALUATED_SCORE: self.score, **rows}


def newest(state: RunState) -> Evaluation | None:
    """The evaluation of the newest step; after a step back, of steps that still count."""
    carried, retained = _carried(state), [c for c in state.undamaged if c.metric is not None and c.step <= state.step]
    of_checkpoint = _of(retained[-1]) if retained else None
    if carried is None or of_checkpoint is None:
        return carried or of_checkpoint
    return carried if carried.step >= of_checkpoint.step else of_checkpoint


def best(state: RunState) -> Evaluation | None:
    """The evaluation of the best checkpoint."""
    found = state.checkpoint(state.best) if state.best else None
    evaluation = None if found is None or found.metric is None else _of(found)
    carried = _carried(state)
    same = evaluation is not None and carried is not None and carried.step == evaluation.step
    return carried if same else evaluation  # the carried one also names the rows


def carried(state: RunState, checkpoint: Checkpoint, rows: int | None) -> Mapping[str, float]:
    """The metrics with the newest evaluation, for the commit of `checkpoint` after `state`. `rows`: of its own."""
    mine = None if checkpoint.metric is None else Evaluation(checkpoint.step, checkpoint.metric, rows)
    found = mine or newest(state)
    return found.metrics() if found else {}


def _of(checkpoint: Checkpoint) -> Evaluation:
    assert checkpoint.metric is not None
    return Evaluation(checkpoint.step, checkpoint.metric)


def _carried(state: RunState) -> Evaluation | None:
    """What the newest commit carries, unless it cannot be true or its step was found damaged."""
    step, score = state.metrics.get(EVALUATED_STEP), state.metrics.get(EVALUATED_SCORE)
    if step is None or score is None or not _whole(step, state.step):
        return None
    if any(c.step == step and c.damaged for c in state.retained):
        return None
    rows = state.metrics.get(EVALUATED_ROWS)
    return Evaluation(int(step), score, int(rows) if rows is not None and _whole(rows, WHOLE) else None)


def _whole(number: float, most: int) -> bool:
    return 0 < number <= most and number == int(number)
