"""Decides which runs of a study count, and compares experiments with their controls. Reads no store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from relay.app.models.plugin import TaskPlugin
from relay.app.studies.experiments import SEED, Design, Point, StudyRun
from relay.app.studies.picking import Seen
from relay.app.studies.statistics import LEVEL, Comparison, Mean, compare, holm, mean_of
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
    mean: Mean | None = None
    """None without a value."""
    against: Comparison | None = None
    """The difference to the control; None for the first experiment, and without two values a side."""
    adjusted: float | None = None
    """The comparison's p-value after Holm's correction."""
    flops: float = 0.0
    """Of one run."""
    hours: float | None = None
    """GPU-hours of one run, by leases; mean over the seeds."""
    gpus: tuple[str, ...] = ()
    """Kinds of GPU that trained the runs."""
    runs: tuple[str, ...] = ()

    def verdict(self, better: str) -> str | None:
        """better, worse, or not told apart; None without a comparison."""
        if self.against is None or self.adjusted is None:
            return None
        if self.adjusted >= LEVEL:
            return "not told apart"
        return "better" if (self.against.difference > 0) == (better == "higher") else "worse"


@dataclass(frozen=True)
class Results:
    """A study's table."""

    design: Design
    metric: str
    rows: tuple[Row, ...]
    apart: tuple[tuple[str, str], ...]
    """(run, why it does not count)."""
    missing: tuple[str, ...]
    """Runs that have not begun."""

    @property
    def better(self) -> str:
        """Which direction of the metric is better."""
        return self.design.study.metrics[self.metric]


def results(design: Design, points: Sequence[Point], seen: Seen, pinned: Pinned, metric: str) -> Results:
    """The table of some experiments. Controls are compared with, also if they are not among them."""
    with_controls = [*points, *(design.points[point.control] for point in points if point.control)]
    runs = {run.name: run for run in design.runs(with_controls)}
    apart = dict(_apart(design, runs.values(), seen, pinned))
    missing = tuple(name for name in runs if name not in seen.runs)
    states = {name: state for name, run in runs.items() if name not in apart and (state := seen.state(run))}
    rows = {point.name: _row(design, point, states, metric) for point in with_controls}
    lacking = {name for point in points for name in rows[point.name].runs if not _has(states[name], point, metric)}
    apart |= dict.fromkeys(lacking, f"its last commit has no {metric}: no time was left for it at the target")
    compared = _compared([rows[point.name] for point in points], rows)
    return Results(design, metric, tuple(compared), tuple(apart.items()), missing)


def differing(plugin: TaskPlugin, pinned: Mapping[str, Any], run: StudyRun) -> list[str]:
    """The settings that a run pinned otherwise than the study's file has them now; `?` if they cannot be read."""
    config = plugin.with_target(run.point.config, run.point.steps)
    mine = dict(flat(config.model_dump(mode="json"))) | {SEED: run.seed}
    free = {*plugin.content, *plugin.local}
    given = {key: Given(key, value, "the run") for key, value in plugin.base(dict(pinned), {}).items()}
    try:
        theirs = dict(flat(validate(plugin.model, given).model_dump(mode="json")))
    except BadSetting:
        return ["?"]
    return sorted(key for key in mine if key not in free and mine[key] != theirs.get(key))


def _apart(design: Design, runs: Iterable[StudyRun], seen: Seen, pinned: Pinned) -> Iterable[tuple[str, str]]:
    """Runs that have begun and do not count, with the reason."""
    whole = dict[str, StudyRun]()
    for run in runs:
        known, state = seen.runs.get(run.name), seen.state(run)
        if known and known.trouble:
            yield run.name, f"unreadable: {known.trouble}"
        elif state and (keys := differing(design.plugin, pinned[run.name], run)):
            yield run.name, f"pinned other settings: {', '.join(keys)}"
        elif state and state.step != run.point.steps:
            yield run.name, f"at step {state.step:,}, not {run.point.steps:,}"
        elif state:
            whole[run.name] = run
    data = {name: _data(design, pinned[name]) for name in whole}
    groups: dict[object, list[str]] = {}
    for name, run in whole.items():
        settings = [(key, value) for key, value in run.point.values().items() if key.startswith("data.")]
        free = {*design.plugin.content, *design.plugin.local}
        key = run.seed, tuple((key, str(value)) for key, value in settings if key not in free)
        groups.setdefault(key, []).append(name)
    for names in groups.values():
        usual = Counter(data[name] for name in names).most_common(1)[0][0]
        yield from ((name, "trained on other data") for name in names if data[name] != usual)


def _data(design: Design, pinned: Mapping[str, Any]) -> tuple[str, ...]:
    """The content of a run's data as it pinned it."""
    values = dict(flat(pinned))
    return tuple(str(values.get(key)) for key in design.plugin.content)


def _row(design: Design, point: Point, states: Mapping[str, RunState], metric: str) -> Row:
    found = {seed: design.run_of(point, seed) for seed in design.seeds}
    counted = {seed: run for seed, run in found.items() if run.name in states}
    values = {seed: value for seed, run in counted.items() if (value := _value(states[run.name], point, metric))}
    source = design.run_of(point, design.seeds[0]).point
    hours = [_hours(design, run, states) for run in counted.values()]
    return Row(
        point,
        {seed: value[0] for seed, value in values.items()},
        mean_of([value[0] for value in values.values()]) if values else None,
        flops=design.plugin.cost(source.config).flops * source.steps,
        hours=fmean(hours) if hours else None,
        gpus=tuple(sorted({gpu for run in counted.values() for gpu in states[run.name].gpus})),
        runs=tuple(run.name for run in counted.values()),
    )


def _value(state: RunState, point: Point, metric: str) -> tuple[float] | None:
    split, _, name = metric.rpartition("/")
    if point.reading != Reading() and not split:
        return None  # metrics of training have no other reading
    value = state.metrics.get(point.reading.named(split, name) if split else metric)
    return None if value is None else (value,)


def _has(state: RunState, point: Point, metric: str) -> bool:
    return _value(state, point, metric) is not None or (point.reading != Reading() and "/" not in metric)


def _hours(design: Design, run: StudyRun, states: Mapping[str, RunState]) -> float:
    """GPU-hours of a run, with those of the run that it continues."""
    parent = design.parent(run)
    before = _hours(design, parent, states) if parent and parent.name in states else 0.0
    return before + sum(one.seconds for one in states[run.name].usage.values()) / 3600


def _compared(shown: Sequence[Row], rows: Mapping[str, Row]) -> list[Row]:
    """The rows with their comparisons, adjusted over all that are shown."""
    made = [
        replace(row, against=compare(row.values, rows[row.point.control].values)) if row.point.control else row
        for row in shown
    ]
    found = {
        n: row.against.p
        for n, row in enumerate(made)
        if row.against is not None and row.point.experiment.same_as is None
    }
    adjusted = dict(zip(found, holm(list(found.values())), strict=True))
    return [
        replace(row, adjusted=adjusted[n]) if n in adjusted else replace(row, against=None)
        for n, row in enumerate(made)
    ]
