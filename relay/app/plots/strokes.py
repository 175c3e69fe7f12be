"""Curves of relay.dashboard/1 as strokes to be drawn: which points hang together, and whose they are; draws nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from relay.app.dashboard.curves import VALIDATION

Point = tuple[float, float]
DAY = 86_400.0
MOST = 1e100
"""What is larger is drawn as this: the differences and squares that a picture needs have no room beyond 1e308."""


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
    """Apart: what was trained again after damage."""
    lower: bool = False
    """Whether lower is better."""
    form: str = ""
    """How a number of it is written; '': as its group's are."""

    @property
    def points(self) -> list[Point]:
        """Along the line, each once."""
        return [point for number, one in enumerate(self.line) for point in one.points[1 if number else 0 :]]


def series_of(curves: Mapping[str, Any], x: str) -> dict[str, list[Series]]:
    """By group, over 'step', 'time' (days since 1970) or 'hours'; series that nobody told any point of are left out."""
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
    for epoch, points in _runs(known):
        before = made[-1].points[-1:] if joined and made else ()
        made.append(Stroke(epoch, (*before, *points)))
    return tuple(made)


def across(at: float, x: str) -> float:
    """Where a point stands on that axis; matplotlib counts time in days."""
    return at / DAY if x == "time" else float(at)


def spans(document: Mapping[str, Any], x: str) -> list[tuple[int, float, float]]:
    """(epoch, from, to) of each session's part of the line; over time, of the session itself, so that gaps show."""
    if x == "time":
        return [
            (one["epoch"], one["started"] / DAY, (one["started"] + one["seconds"]) / DAY)
            for one in document["sessions"]
        ]
    line = document["curves"]["line"]
    runs = _runs([(epoch, (float(at), 0.0)) for epoch, at in zip(line["epoch"], line[x], strict=True)])
    ends = [0.0, *(points[-1][0] for _, points in runs)]
    return [(epoch, ends[number], ends[number + 1]) for number, (epoch, _) in enumerate(runs)]


def handoffs(sessions: Sequence[Mapping[str, Any]], x: str) -> list[float]:
    """Where each session but the first began: the thin lines."""
    key = {"step": "from_step", "time": "started", "hours": "hours"}[x]
    return [across(later[key], x) for _, later in pairwise(sessions)]


def best(one: Series) -> Point | None:
    """The first of the highest points of the line, where the series is what checkpoints are chosen by; else None."""
    if one.name != VALIDATION or not one.points:
        return None
    return min(one.points, key=lambda point: point[1]) if one.lower else max(one.points, key=lambda point: point[1])


def _runs(known: Sequence[tuple[int, Point]]) -> list[tuple[int, list[Point]]]:
    """Neighbours of one epoch together."""
    found: list[tuple[int, list[Point]]] = []
    for epoch, point in known:
        if not found or found[-1][0] != epoch:
            found.append((epoch, []))
        found[-1][1].append(point)
    return found
