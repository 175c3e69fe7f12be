"""The run's target, which all participants share: how a session may change it, and how the change is recorded.

The newest lease carries the target. A session that changes it records an incident right after its lease.
"""

from __future__ import annotations

from enum import Enum

from relay.core.errors import BadConfig
from relay.core.ledger.changes import Noted
from relay.core.ledger.frozen import TARGET
from relay.core.ledger.state import Incident, RunState
from storage.wording import counted


class Rule(Enum):
    """The effect of a session's number of steps on the run's target."""

    KEEP = "keep"
    """Only a run without a target gets it."""
    RAISE = "raise"
    """A run without a target gets it, and a lower target is raised to it."""
    REPLACE = "replace"
    """It replaces the target for everybody, also a higher one."""


class LowerTarget(BadConfig):
    """A session asked for a lower target than the run's."""

    def __init__(self, run: str, target: int, asked: int) -> None:
        super().__init__(
            f"The target of run {run} is {counted(target, 'step')} for everybody, and {asked:,} would lower it for all."
        )
        self.run, self.target, self.asked = run, target, asked


class TargetBehind(BadConfig):
    """The new target lies before the durable step."""

    def __init__(self, run: str, step: int, asked: int) -> None:
        super().__init__(f"Run {run} is at step {step:,} already: its target cannot become {asked:,}.")
        self.run, self.step, self.asked = run, step, asked


def refuse_lower(state: RunState, steps: int, rule: Rule) -> None:
    """Raises LowerTarget or TargetBehind (78) for a target that this session may not set."""
    if rule is Rule.RAISE and steps < state.target_steps:
        raise LowerTarget(state.run, state.target_steps, steps)
    if rule is Rule.REPLACE and steps < state.step:
        raise TargetBehind(state.run, state.step, steps)


def target_after(state: RunState, steps: int, rule: Rule) -> int:
    """The run's target under this session's lease. Raises TargetBehind (78).

    Another session may have raised it since this one was allowed to begin; then the higher target counts.
    """
    if rule is Rule.REPLACE:
        refuse_lower(state, steps, rule)
        return steps
    if rule is Rule.KEEP and state.target_steps:
        return state.target_steps
    return max(state.target_steps, steps)


def changed(before: int, after: int, account: str, step: int) -> Noted | None:
    """The incident that records the change; None for a run without a target until now, and without a change."""
    if not before or before == after:
        return None
    word = "raised" if after > before else "lowered"
    return Noted(cause=TARGET, text=f"target {word} {before:,} → {after:,} by {account}", step=step)


def newest_change(state: RunState) -> Incident | None:
    """The newest recorded change of the target that the state still names."""
    return next((one for one in reversed(state.incidents) if one.cause == TARGET), None)
