"""Turns commits and their metrics into curves: one line through all sessions, redone steps apart, few points."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relay.app.dashboard.history import CommitEvent, Event, RewindEvent
from relay.app.dashboard.machine import DRAWN, MACHINE
from relay.app.dashboard.sessions import hours_before
from relay.core.ledger.sessionreport import about_itself
from relay.core.ledger.state import Link
from relay.core.workload import Headline, Measures

MOST_POINTS = 4_000
MOST_EXPANDED = 20_000
"""Most points between commits; a longer run has fewer for each commit."""
MOST_SERIES = 32
MOST_VALUES = 32_000
"""Most values of all series of a line together; with many series there are fewer points."""
VALIDATION = "validation"
"""Name of the series with the scores of checkpoints: the headline on the split that chooses the best one."""


def fold(events: Iterable[Event]) -> tuple[list[CommitEvent], list[CommitEvent]]:
    """Return (current line, redone commits). Steps of the line grow strictly, so no step is in it twice.

    A commit that restores a copy also restores all commits that led to it. Each keeps its step, time and session, and
    takes the slot of the restoring entry.
    """
    line: list[CommitEvent] = []
    redone: list[CommitEvent] = []
    left: list[CommitEvent] = []
    for event in events:
        keep = event.step if isinstance(event, RewindEvent) else event.step - 1
        back = came_back(event, left)
        redone += left[len(back) :]
        first = bisect(line, keep, key=lambda one: one.step)
        left = line[first:]
        del line[first:]
        if isinstance(event, CommitEvent):
            line += [replace(one, slot=event.slot) for one in back] or [event]
    return line, sorted([*redone, *left], key=lambda one: one.slot)


def came_back(event: Event, left: Sequence[CommitEvent]) -> list[CommitEvent]:
    """Return the commits of `left`, which the last rewind gave up, that this commit restores: up to its state hash."""
    if isinstance(event, RewindEvent) or not event.again:
        return []
    same = [n for n, one in enumerate(left, 1) if (one.step, one.state_hash) == (event.step, event.state_hash)]
    return list(left[: same[0]]) if same else []


def curves(events: Iterable[Event], links: Sequence[Link], measures: Measures) -> dict[str, Any]:
    """Return the columns of both lines: step, epoch, time (unix seconds), hours of lease and values."""
    line, redone = fold(events)
    before, headline = hours_before(links), measures.headline
    names = [*chosen(line or redone, measures), *measured(line or redone)]
    return {
        "series": [series(name, measures) for name in names],
        "line": columns(expanded(line), names, before, headline),
        "redone": columns(expanded(redone), names, before, headline),
        "commits": len(line),
    }


def expanded(commits: Sequence[CommitEvent]) -> list[CommitEvent]:
    """Return each commit, and before it the metrics since the previous one, in the form of commits."""
    each = MOST_EXPANDED // max(1, len(commits))
    if each == 0 or all(one.samples is None for one in commits):
        return list(commits)
    return [point for one in commits for point in _points(one, each)]


def _points(commit: CommitEvent, most: int) -> Iterator[CommitEvent]:
    """Yield at most `most` points before the commit's own step; only the own step keeps validation and samples."""
    *before, own = commit.rows()
    for told in before[:: -(-len(before) // most) or 1]:
        where: dict[str, Any] = {"step": told.step, "at": told.at, "seconds": told.seconds, "metrics": told.metrics}
        yield replace(commit, **where, validation=None, samples=None)
    yield replace(commit, at=own.at, seconds=own.seconds)


def chosen(commits: Sequence[CommitEvent], measures: Measures) -> list[str]:
    """Return the names of the series to draw, the most interesting first."""
    every = set().union(*(one.metrics for one in commits)).difference((*measures.unseen, measures.stored))
    told = {name for name in every if not about_itself(name)}
    if any(one.validation is not None for one in commits):
        told.add(VALIDATION)
    first = _first(measures)
    return [name for name in (*first, *sorted(told.difference(first))) if name in told][:MOST_SERIES]


def measured(commits: Sequence[CommitEvent]) -> list[str]:
    """Return the machine's measurements that any commit carries."""
    return [name for name in MACHINE if any(name in one.metrics for one in commits)]


def _first(measures: Measures) -> list[str]:
    """Return the first names, with the validation after the same metric of training, or after the first metric."""
    found = list(measures.first)
    same = measures.headline.name
    found.insert(found.index(same) + 1 if same in found else 1, VALIDATION)
    return found


def series(name: str, measures: Measures) -> dict[str, Any]:
    """Return name, title and group of a series; for the validation also the better direction and number format."""
    headline = measures.headline
    if name in MACHINE:
        title, group, _ = MACHINE[name]
        return {"name": name, "title": title, "group": group}
    if name == VALIDATION:
        shown = {"title": f"validation, {headline.title}", "group": group_of(headline.name)}
        return {"name": name, **shown, "better": headline.better, "form": headline.form}
    return {"name": name, "title": measures.titles.get(name, name), "group": group_of(name)}


def group_of(name: str) -> str:
    """Return the plot of a metric."""
    if name == "lr":
        return "rate"
    if "loss" in name:
        return "loss"
    return "accuracy" if "accuracy" in name else "other"


def columns(
    commits: Sequence[CommitEvent], names: Sequence[str], before: Mapping[int, float], headline: Headline
) -> dict[str, Any]:
    """Return the columns of at most MOST_POINTS commits and MOST_VALUES values, in the order of the line."""
    values = {name: values_of(commits, name, headline) for name in names}
    kept = thinned(list(values.values()), len(commits), min(MOST_POINTS, MOST_VALUES // max(1, len(names))))
    points = [commits[i] for i in kept]
    return {
        "step": [one.step for one in points],
        "epoch": [one.epoch for one in points],
        "time": [round(one.at) for one in points],
        "hours": [round(before.get(one.epoch, 0.0) + one.seconds / 3600, 3) for one in points],
        "values": [[_short(values[name][i]) for i in kept] for name in names],
    }


def values_of(commits: Sequence[CommitEvent], name: str, headline: Headline) -> list[float | None]:
    """Return the values of one series; None for a commit without it."""
    if name == VALIDATION:
        return [None if one.validation is None else headline.value(one.validation) for one in commits]
    if name in MACHINE:
        factor = MACHINE[name][2]
        return [None if (found := one.metrics.get(name)) is None else factor * found for one in commits]
    return [one.metrics.get(name) for one in commits]


def thinned(series: Sequence[Sequence[float | None]], count: int, limit: int) -> list[int]:
    """Return the indices to keep of `count`: both ends, and each series' lowest and highest in equal stretches."""
    if count <= limit:
        return list(range(count))
    stretches = max(1, (limit - 2) // max(2, 2 * len(series)))
    kept = {0, count - 1}
    for number in range(stretches):
        places = range(number * count // stretches, (number + 1) * count // stretches)
        if not series:
            kept.add(places[0])
        for values in series:
            known = [(value, place) for place in places if (value := values[place]) is not None]
            kept |= {min(known)[1], max(known)[1]} if known else set()
    return sorted(kept)


def _short(value: float | None) -> float | None:
    """Round to six digits, enough for a plot. None beyond DRAWN, where the span of an axis would be infinite."""
    return None if value is None or abs(value) > DRAWN else float(f"{value:.6g}")
