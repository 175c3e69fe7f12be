"""One line of a run's history and its points, the same for every tracker; does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from relay.app.dashboard.history import CommitEvent
from relay.core.ledger.sessionreport import about_itself
from relay.core.workload import Measures

STEP = "trainer/step"
"""The x axis of curves."""
USUAL = ("step_s", "goodput", "upload_s")
"""Measurements of the session itself that trackers show: seconds a step, share of time in steps, seconds an upload."""


@dataclass(frozen=True)
class Line:
    """A run's history up to the next rewind. Line n is the current history after n rewinds, from the first step on."""

    project: str
    run: str
    run_id: str
    """32 hexadecimal digits; differs between runs of the same name in different stores."""
    rewinds: int
    config: Mapping[str, Any]
    """The pinned configuration without private values (`public`)."""
    created: float
    """Unix seconds by the store's clock."""
    began: int = -1
    """Slot of the rewind that began the line; -1 if there is none or it was not read."""

    @property
    def name(self) -> str:
        """Name of the tracker's run."""
        return f"{self.run}-rewind-{self.rewinds}" if self.rewinds else self.run

    @property
    def key(self) -> str:
        """Unique to this run and line; every session of the run has the same."""
        return f"{self.run}-{self.run_id[:12]}{f'-rewind-{self.rewinds}' if self.rewinds else ''}"


@dataclass(frozen=True)
class Point:
    """The numbers of one step. `at`: unix seconds by the store's clock."""

    slot: int
    """Slot of its commit in the ledger."""
    step: int
    at: float
    values: Mapping[str, float]


def points_of(commit: CommitEvent, measures: Measures, details: bool = False) -> Iterator[Point]:
    """Yield the points up to a commit, by step. The last one is the commit's own step, with its validation.

    `details`: with everything that the session measured of itself, not only the USUAL.
    """
    *before, own = commit.rows()
    for told in before:
        yield Point(commit.slot, told.step, told.at, _named(told.metrics, measures, details))
    score = commit.validation
    known = {} if score is None else {measures.stored: measures.headline.value(score)}
    yield Point(commit.slot, own.step, own.at, {**_named(own.metrics, measures, details), **known})


def _named(metrics: Mapping[str, float], measures: Measures, details: bool) -> dict[str, float]:
    """Return the shown metrics under their full names, the most interesting first."""
    order = sorted(metrics, key=lambda name: measures.first.index(name) if name in measures.first else len(metrics))
    return {
        _full(name, measures): metrics[name] for name in order if details or name in USUAL or not about_itself(name)
    }


def _full(name: str, measures: Measures) -> str:
    """Return a metric's name in trackers: by split if evaluated, otherwise under train/ or relay/.

    The first metric of training, its loss, has no group: every tracker shows metrics without a group first.
    """

    def shown(one: str) -> str:
        return measures.short.get(one, one)

    if name.startswith(measures.on_split("")):
        return name
    if any(shown(name) == shown(lead) for lead in measures.first[:1]):
        return shown(name)
    return f"relay/{name}" if about_itself(name) else f"train/{name}"
