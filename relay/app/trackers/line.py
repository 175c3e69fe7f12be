"""One line of a run's history and its points, as every tracker is told them; pure, knows no tracker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from relay.app.dashboard.history import Committed
from relay.core.ledger.sessionreport import about_itself
from relay.core.workload import Measures

STEP = "trainer/step"
"""What curves are drawn over."""


@dataclass(frozen=True)
class Line:
    """A run's history up to the next rewind. Line n is what stands after n rewinds, from the first step on."""

    project: str
    run: str
    run_id: str
    """32 hexadecimal digits: runs of one name in different stores are different ones."""
    rewinds: int
    config: Mapping[str, Any]
    """The pinned configuration as a stranger may read it."""
    created: float
    """Unix seconds by the store's clock."""
    began: int = -1
    """The ledger's slot of the rewind that began it, as far as that was read."""

    @property
    def name(self) -> str:
        """Of the tracker's run."""
        return f"{self.run}-rewind-{self.rewinds}" if self.rewinds else self.run

    @property
    def key(self) -> str:
        """The same for everybody who trains this run, and for no other run."""
        return f"{self.run}-{self.run_id[:12]}{f'-rewind-{self.rewinds}' if self.rewinds else ''}"


@dataclass(frozen=True)
class Point:
    """What is known of one step. `at` is unix seconds by the store's clock."""

    slot: int
    """Of the commit in the ledger that told it."""
    step: int
    at: float
    values: Mapping[str, float]


def points_of(commit: Committed, measures: Measures) -> Iterator[Point]:
    """What training told up to a commit, the last with all that the commit tells of its own step; steps grow."""
    *before, own = commit.rows()
    for told in before:
        yield Point(commit.slot, told.step, told.at, _named(told.metrics, measures))
    score = commit.validation
    known = {} if score is None else {measures.stored: measures.headline.value(score)}
    yield Point(commit.slot, own.step, own.at, {**_named(own.metrics, measures), **known})


def _named(metrics: Mapping[str, float], measures: Measures) -> dict[str, float]:
    """Behind the name of the split for what was evaluated, else behind train/ or relay/."""
    return {_full(name, measures): value for name, value in metrics.items()}


def _full(name: str, measures: Measures) -> str:
    if name.startswith(measures.on_split("")):
        return name
    return f"relay/{name}" if about_itself(name) else f"train/{name}"
