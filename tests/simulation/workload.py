"""The toy workload in a simulated process: may compute wrongly, become non-finite, crash; shows the judge each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relay.core.workload import Finite, Progress
from tests.core.borrowing import Sharing
from tests.core.toy import ToySnapshot, ToyWorkload
from tests.simulation.actor import Actor
from tests.simulation.truth import NAN, after


class Crash(RuntimeError):
    """The training loop fails, as planned."""


@dataclass
class SimWorkload(ToyWorkload):
    """`nan_at`: from that step on the state is NAN, also for a session that loads it."""

    actor: Actor = field(default_factory=lambda: Actor("nobody", "", ""))
    clock: Callable[[], float] = lambda: 0.0
    trained_one: Callable[[Actor], None] = lambda actor: None
    """Told after each step of training."""

    def advance(self, until: int, should_stop: Callable[[], bool], report: Callable[[Progress], None] | None) -> None:
        while self.step < until and not should_stop():
            self.sleep(self.step_s)
            if self.step in self.crash:
                raise self.crash[self.step]
            values = after(self.values, self.step, self.impure)
            self.step += 1
            self.values = NAN if self.nan_at is not None and self.step >= self.nan_at else values
            self.actor.trained_at.append((self.clock(), self.step))
            self.trained_one(self.actor)
            if report is not None:
                report(Progress(self.step, {"loss": 1.0 / self.step}))

    def snapshot(self) -> ToySnapshot:
        self.actor.snapshots.setdefault(self.step, self.clock())
        finite = Finite(self.values != NAN, "loss is nan")
        return ToySnapshot(self.step, self.values, finite, self.before_save)


@dataclass
class SharingWorkload(Sharing, SimWorkload):
    """Its checkpoints share tables."""
