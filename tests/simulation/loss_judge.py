"""The judge of the cost of a death (P6): called after every training step of every session, also without a death."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.actor import Actor

if TYPE_CHECKING:
    from tests.simulation.oracle import Oracle

LATENCY_S = 60.0
"""Snapshot to append in calm weather at most, beside the step and the evaluation meanwhile."""
RECOVERY_S = 180.0
"""After trouble: the longest wait of the committer, and of the store's own retries, before the next attempt."""


class LossJudge:
    """At each step: is a snapshot overdue, and is more at risk than P6 allows?"""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.require = oracle, oracle.require

    def trained(self, actor: Actor) -> None:
        """A step is done. In any weather its snapshots are taken in time; in calm weather they are durable in time."""
        now, step = actor.trained_at[-1]
        last = max(actor.snapshots, default=actor.trained_at[0][1] - 1)
        unsaved = step - last
        self.require(
            unsaved <= actor.every_steps,
            f"P6: {actor.name} trains {unsaved} steps without a snapshot, one was due every {actor.every_steps}",
        )
        trouble = max(actor.troubled_at, actor.disk_full_at)
        if now - trouble <= RECOVERY_S + self._allowed(actor) or not self._holds(actor):
            return
        at_risk, allowed = now - self._durable_at(actor), self._allowed(actor)
        self.require(
            at_risk <= allowed, f"P6: {actor.name} would lose {at_risk:.0f} s of work, {allowed:.0f} s allowed"
        )
        self.oracle.sky.summary.at_risk(at_risk, allowed)

    def _allowed(self, actor: Actor) -> float:
        """The commit interval, with an evaluation in it, and the time from the next snapshot to its append."""
        interval = min(actor.every_steps * actor.step_s, actor.every_s + actor.step_s)
        return interval + actor.evaluate_s + LATENCY_S + actor.step_s + actor.evaluate_s

    def _durable_at(self, actor: Actor) -> float:
        """When the newest committed state of this session was taken; without one, when it began to train."""
        began = actor.trained_at[0][0] - actor.step_s
        return actor.snapshots.get(actor.committed, began)

    def _holds(self, actor: Actor) -> bool:
        return any(run.holder is actor for run in self.oracle.runs.values())
