"""Decides which runs of a study count, and compares experiments with their controls. Reads no store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from relay.app.models.plugin import Finding, Statement, TaskPlugin
from relay.app.studies.experiments import SEED, Design, Point, StudyRun
from relay.app.studies.picking import Seen
from relay.app.studies.statistics import LEVEL, Comparison, Mean, compare, holm, mean_of
from relay.core.ledger.finaltest import of_head
from relay.core.ledger.state import RunState
from relay.core.settings.config import flat
from relay.core.settings.origins import BadSetting, Given
from relay.core.settings.validating import validate
from relay.core.workload import Reading

Pinned = Mapping[str, Mapping[str, Any]]
"""The configuration that each begun run pinned, by its name."""


@dataclass(frozen=True)
class Row:
    """One experiment of the table."""

    point: Point
    values: Mapping[int, float]
    """By seed."""
    mean: Mean | None
    """None without a value."""
    flops: float
    """Of one run."""
    hours: float | None
    """GPU-hours of one run, by leases; mean over the seeds."""
    gpus: tuple[str, ...]
    """Kinds of GPU that trained the runs."""
    runs: tuple[str, ...]
    against: Comparison | None = None
    """The difference to the control; None for the first experiment, and without two values a side."""
    adjusted: float = 1.0
    """The comparison's p-value after Holm's correction."""
    needed: int | None = None
    """Runs a side that would tell the difference apart, with the same number of comparisons."""
    verdict: str | None = None
    """better, worse, or not told apart; None without a comparison."""


@dataclass(frozen=True)
class Results:
    """A study's table."""

    design: Design
    metric: str
    rows: tuple[Row, ...]
    apart: Mapping[str, str]
    """Why a run does not count."""
    missing: tuple[str, ...]
    """Runs that have not begun."""
    worth: Statement | None = None
    """The model's own part of the table."""


def results(design: Design, points: Sequence[Point], seen: Seen, pinned: Pinned, metric: str) -> Results:
    """The table of some experiments. Controls are compared with, also if they are not among them."""
    every = [*points, *(design.points[point.control] for point in points if point.control)]
    runs = design.runs(every)
    apart = dict(_apart(design, runs, seen, pinned))
    states = {run.name: state for run in runs if run.name not in apart and (state := seen.state(run))}
    rows = {point.name: _row(design, point, states, metric) for point in every}
    apart |= _lacking(design, points, states, rows, metric)
    missing = tuple(run.name for run in runs if run.name not in seen.runs)
    worth = design.plugin.worth(list(_findings(design, points, states)))
    return Results(design, metric, _compared(design, metric, points, rows), apart, missing, worth)


def differing(plugin: TaskPlugin, pinned: Mapping[str, Any], run: StudyRun) -> list[str]:
    """The settings that a run pinned otherwise than the study's file has them now; `?` if they cannot be read."""
    config = plugin.with_target(run.point.config, run.point.steps)
    mine = dict(flat(config.model_dump(mode="json"))) | {SEED: run.seed}
    given = {key: Given(key, value, "the run") for key, value in plugin.base(dict(pinned), {}).items()}
    try:
        theirs = dict(flat(validate(plugin.model, given).model_dump(mode="json")))
    except BadSetting:
        return ["?"]
    return sorted(mine.keys() - _free(plugin) - {key for key in mine if mine[key] == theirs.get(key)})


def _free(plugin: TaskPlugin) -> set[str]:
    """Settings that only lead to data."""
    return {*plugin.content, *plugin.local}


def _apart(design: Design, runs: Iterable[StudyRun], seen: Seen, pinned: Pinned) -> Iterable[tuple[str, str]]:
    """Runs that have begun and do not count, with the reason."""
    groups: dict[object, dict[str, tuple[str, ...]]] = {}
    for run in runs:
        known, state = seen.runs.get(run.name), seen.state(run)
        if known and known.trouble:
            yield run.name, f"unreadable: {known.trouble}"
        if state is None:
            continue
        if keys := differing(design.plugin, pinned[run.name], run):
            yield run.name, f"pinned other settings: {', '.join(keys)}"
        elif state.step != run.point.steps:
            yield run.name, f"at step {state.step:,}, not {run.point.steps:,}"
        else:
            free, content = _free(design.plugin), dict(flat(pinned[run.name]))
            asked = [f"{key}={value}" for key, value in run.point.values.items() if key.startswith("data.")]
            key = run.seed, *(text for text in asked if text.partition("=")[0] not in free)
            groups.setdefault(key, {})[run.name] = tuple(str(content.get(key)) for key in design.plugin.content)
    for data in groups.values():
        usual = Counter(data.values()).most_common(1)[0][0]
        yield from ((name, "trained on other data") for name, content in data.items() if content != usual)


def _lacking(
    design: Design, points: Sequence[Point], states: Mapping[str, RunState], rows: Mapping[str, Row], metric: str
) -> dict[str, str]:
    """Runs without a value of an experiment that uses them, with the metrics that are missing."""
    lacking: dict[str, list[str]] = {}
    for point in points:
        stored = _stored(point, metric)
        for run in (design.run_of(point, seed) for seed in design.seeds if seed not in rows[point.name].values):
            if stored and run.name in states:
                lacking.setdefault(run.name, []).append(stored)
    runs = {run.name: run for run in design.runs(points)}
    return {
        name: f"it has no {' or '.join(dict.fromkeys(stored))}{_help(design, runs[name], states[name], stored)}"
        for name, stored in sorted(lacking.items())
    }


def _help(design: Design, run: StudyRun, state: RunState, stored: Sequence[str]) -> str:
    """Whether a session can still make the test that these metrics are of."""
    tests = {name.rpartition("/")[0] for name in stored}
    return "; study run makes the test" if tests & set(design.untested(run, state)) else ""


def _stored(point: Point, metric: str) -> str | None:
    """The name of the metric in the run that the experiment uses; None if its reading has none, as in training."""
    split, _, name = metric.rpartition("/")
    if split:
        return point.reading.named(split, name)
    return metric if point.reading == Reading() else None


def _row(design: Design, point: Point, states: Mapping[str, RunState], metric: str) -> Row:
    stored = _stored(point, metric)
    runs = {seed: run for seed in design.seeds if (run := design.run_of(point, seed)).name in states}
    found = {seed: of_head(states[run.name]).get(stored) for seed, run in runs.items() if stored}
    values = {seed: value for seed, value in found.items() if value is not None}
    source = design.run_of(point, design.seeds[0]).point
    hours = [_hours(design, run, states) for run in runs.values()]
    return Row(
        point,
        values,
        mean_of(list(values.values())) if values else None,
        design.plugin.cost(source.config).flops * source.steps,
        fmean(hours) if hours else None,
        tuple(sorted({gpu for run in runs.values() for gpu in states[run.name].gpus})),
        tuple(run.name for run in runs.values()),
    )


def _findings(design: Design, points: Sequence[Point], states: Mapping[str, RunState]) -> Iterable[Finding]:
    """The experiments that were trained, with the means of all metrics that each of their runs has."""
    for point in points:
        if not point.trained:
            continue
        found = [of_head(states[run.name]) for seed in design.seeds if (run := StudyRun(point, seed)).name in states]
        common = set(found[0]).intersection(*found) if found else set()
        if design.study.metric in common:
            metrics = {name: fmean(one[name] for one in found) for name in sorted(common)}
            half = mean_of([one[design.study.metric] for one in found]).half
            flops = design.plugin.cost(point.config).flops * point.steps
            yield Finding(point.name, point.config, flops, len(found), metrics, half or 0.0)


def _hours(design: Design, run: StudyRun, states: Mapping[str, RunState]) -> float:
    """GPU-hours of a run, with those of the run that it continues."""
    parent = design.parent(run)
    before = _hours(design, parent, states) if parent and parent.name in states else 0.0
    return before + sum(one.seconds for one in states[run.name].usage.values()) / 3600


def _compared(design: Design, metric: str, points: Sequence[Point], rows: Mapping[str, Row]) -> tuple[Row, ...]:
    """The rows with their comparisons, adjusted over all that are shown."""
    found: dict[str, Comparison] = {}
    for point in points:
        if point.control and not point.experiment.same_as:
            against = compare(rows[point.name].values, rows[point.control].values)
            found |= {point.name: against} if against else {}
    adjusted = dict(zip(found, holm([one.p for one in found.values()]), strict=True))
    higher = design.study.metrics[metric] == "higher"
    made = {}
    for name, one in found.items():
        verdict = "better" if (one.difference > 0) == higher else "worse"
        verdict = verdict if adjusted[name] < LEVEL else "not told apart"
        needed = one.needed(len(found))
        made[name] = replace(rows[name], against=one, adjusted=adjusted[name], needed=needed, verdict=verdict)
    return tuple(made.get(point.name, rows[point.name]) for point in points)
