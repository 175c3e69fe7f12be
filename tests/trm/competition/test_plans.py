"""A thousand reruns of twelve hours on simulated clocks: machines of all speeds, stalls, slow disks, more inputs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from trm.competition.pace import Pace
from trm.competition.solver import Solver
from trm.competition.supervisor import Times

LIMIT_S, ADAPT_S = 12 * 3600.0, 9 * 3600.0
PLACEHOLDER, ROWS, VARIANTS = 255, 256, 256
"""Inputs of the placeholder, of which the hidden file has a third more; rows of a round on four cards; variants."""


class Answering:
    """Takes simulated time, with a stall now and then."""

    networks = (None,)

    def __init__(self, chance: random.Random, start: float) -> None:
        self.chance, self.clock = chance, start
        self.each = chance.uniform(2.0, 300.0)
        """Seconds of a round: from four H200 to two T4."""
        inputs = PLACEHOLDER * 4 // 3
        self.rounds, self.covering = -(-inputs * VARIANTS // ROWS), -(-inputs // ROWS)

    def chunks(self, done: object) -> Iterator[np.ndarray]:
        return (np.zeros(1) for _ in range(self.rounds))

    def answers(self, chunks: object) -> list[tuple[int, int]]:
        stall = self.chance.uniform(10, 400) if self.chance.random() < 0.003 else 0.0
        self.clock += self.each * self.chance.lognormvariate(0, 0.15) + stall
        return [(0, 0)]


class World(Solver):
    """The solver's own loop, with votes and a file that take simulated time."""

    def __init__(self, answering: Answering, deadline: float) -> None:
        self.answering, self.disk = answering, answering.chance.uniform(0.05, 60.0)  # type: ignore[assignment]
        self._pace, self._report = Pace(lambda: answering.clock, deadline), lambda _: None
        self.votes = self._layout = self._done = _Nothing()  # type: ignore[assignment]
        self.resumed, self.notes, self.done, self.written = 0, [], 0, 0

    def adapt(self, wanted: float, step_s: float) -> float:
        """As Adaptation.run, a hundred steps at once; returns its seconds."""
        answering = self.answering
        votes_s, began = answering.each * answering.rounds, answering.clock  # type: ignore[attr-defined]
        while (spent := answering.clock - began) + step_s <= self._pace.training(wanted, spent, votes_s):  # type: ignore[attr-defined]
            answering.clock += 100 * step_s * answering.chance.uniform(0.9, 1.2)  # type: ignore[attr-defined]
        return spent

    def _keep(self, found: object) -> None:
        self.done += 1

    def _rewrite(self) -> None:
        took = self.disk * self.answering.chance.uniform(0.5, 2.0)  # type: ignore[attr-defined]
        self.answering.clock += took  # type: ignore[attr-defined]
        self.written = self.done
        self._pace.wrote(took)

    def _progress(self, speed: float) -> Any:
        return None


class _Nothing:
    order = ()

    def read(self, *_: object) -> tuple[()]:
        return ()


@pytest.mark.slow
def test_a_thousand_plans_end_in_time_with_every_input_covered() -> None:
    complete = killed = 0
    for seed in range(1000):
        chance, times = random.Random(seed), Times(LIMIT_S)
        began = chance.uniform(0, 300)  # the machine's own start, before the first cell
        answering = Answering(chance, start=chance.uniform(5, 120) + chance.uniform(20, 600))  # unpacks, loads
        world = World(answering, times.budget)
        trained = world.adapt(chance.choice([0.0, 3600.0, ADAPT_S]), chance.uniform(0.2, 20))
        outcome = world.run()
        end = min(answering.clock, times.kill)
        killed += answering.clock > times.kill
        complete += outcome.complete
        assert began + end + chance.uniform(1, 120) <= LIMIT_S, f"seed {seed}"
        rest = times.budget - trained
        assert rest > min(0.5 * LIMIT_S, answering.each * answering.rounds) - 4000, (
            f"seed {seed}: the votes have no time"
        )
        assert world.written >= answering.covering, f"seed {seed}: an input has no vote in the file"
        wasted = times.budget - answering.clock
        assert outcome.complete or wasted < 4 * (answering.each + world.disk) + 600, f"seed {seed}"
    assert 100 < complete < 1000 and killed <= 5, (complete, killed)
