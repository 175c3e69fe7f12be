"""Curves of relay.dashboard/1 as lines to draw: which points hang together, and whose they are; draws nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from relay.app.dashboard.curves import VALIDATION

Point = tuple[float, float]
DAY = 86_400.0
MOST = 1e100
"""A larger number is drawn as this one: the differences and squares that a picture needs have no room beyond 1e308."""


@dataclass(frozen=True)
class Stroke:
    """Points of one session that follow each other; in a line it begins where the one before it ended."""

    epoch: int
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Series:
    """One number through everybody's sessions."""

    name: str
    title: str
    line: tuple[Stroke, ...]
    redone: tuple[Stroke, ...]
    """Apart: points that were trained again after damage."""
    lower: bool = False
    """Whether lower is better."""
    form: str = ""
    """How a number of it is written; '': as its group's are."""

    @property
    def points(self) -> list[tuple[int, Point]]:
        """(epoch, point) along the line, each once."""
        return [
            (one.epoch, point) for number, one in enumerate(self.line) for point in one.points[1 if number else 0 :]
        ]

    @property
    def best(self) -> Point | None:
        """The first of the best points, if this is the series that checkpoints are chosen by."""
        points = [point for _, point in self.points]
        if self.name != VALIDATION or not points:
            return None
        return min(points, key=lambda point: point[1]) if self.lower else max(points, key=lambda point: point[1])


def series_of(curves: Mapping[str, Any], x: str) -> dict[str, list[Series]]:
    """By group, over 'step', 'time' (days since 1970) or 'hours'; series without any point are left out."""
    found: dict[str, list[Series]] = {}
    for number, one in enumerate(curves["series"]):
        line, redone = (strokes(curves[side], number, x, side == "line") for side in ("line", "redone"))
        if line or redone:
            more = one.get("better") == "lower", one.get("form", "")
            found.setdefault(one["group"], []).append(Series(one["name"], one["title"], line, redone, *more))
    return found


def strokes(side: Mapping[str, Any], number: int, x: str, joined: bool) -> tuple[Stroke, ...]:
    """Of one column. joined: each stroke begins with the point that the one before it ended with."""
    known = [
        (epoch, (across(at, x), max(-MOST, min(MOST, float(value)))))
        for epoch, at, value in zip(side["epoch"], side[x], side["values"][number], strict=True)
        if value is not None
    ]
    made: list[Stroke] = []
    for epoch, points in groupby(known, key=lambda one: one[0]):
        before = made[-1].points[-1:] if joined and made else ()
        made.append(Stroke(epoch, (*before, *(point for _, point in points))))
    return tuple(made)


def across(at: float, x: str) -> float:
    """A point's place on that axis; matplotlib counts time in days."""
    return at / DAY if x == "time" else float(at)


def spans(document: Mapping[str, Any], x: str) -> list[tuple[int, float, float]]:
    """(epoch, from, length) of each session's part of the line; over time, of the session itself, so that gaps show."""
    if x == "time":
        return [(one["epoch"], one["started"] / DAY, one["seconds"] / DAY) for one in document["sessions"]]
    line = document["curves"]["line"]
    runs = [
        (epoch, list(each)) for epoch, each in groupby(zip(line["epoch"], line[x], strict=True), lambda one: one[0])
    ]
    ends = [0.0, *(float(each[-1][1]) for _, each in runs)]
    return [(epoch, ends[number], ends[number + 1] - ends[number]) for number, (epoch, _) in enumerate(runs)]


def handoffs(sessions: Sequence[Mapping[str, Any]], x: str) -> list[float]:
    """Where each session but the first began: the thin lines."""
    key = {"step": "from_step", "time": "started", "hours": "hours"}[x]
    return [across(later[key], x) for _, later in pairwise(sessions)]


def longest(sessions: Sequence[Mapping[str, Any]], most: int) -> list[str]:
    """Accounts in the order they came; of more than `most`, those that trained longest."""
    given: dict[str, float] = {}
    for row in sessions:
        given[row["account"]] = given.get(row["account"], 0.0) + row["seconds"]
    kept = set(sorted(given, key=lambda account: -given[account])[:most])
    return [account for account in given if account in kept]


def labels(document: Mapping[str, Any]) -> dict[str, str]:
    """The listed accounts' labels."""
    return {row["id"]: row["label"] for row in document["accounts"]}
