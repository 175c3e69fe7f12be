"""Resolves a study: settings, steps and relations of each experiment, and its runs. Finds every fault at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import BaseModel

from relay.app.models.plugin import TaskPlugin
from relay.app.studies.studyfile import BadStudy, Experiment, Fault, Study, StudyFile, Value
from relay.core.errors import BadConfig
from relay.core.ledger.finaltest import untested
from relay.core.ledger.state import RunState
from relay.core.names import NAME, nearest
from relay.core.settings.config import Settings, flat, leaves
from relay.core.settings.origins import BadSetting, Given
from relay.core.settings.validating import validate
from relay.core.workload import Reading

SEED = "seed"
"""The setting of every model that a study varies within an experiment."""
OWN = ("project", "run", "account", "target_steps", "until_step", "evaluation.test_rows", "evaluation.test_also")
"""Settings of the relay that the study decides."""


@dataclass(frozen=True)
class Point:
    """One experiment, resolved."""

    name: str
    experiment: Experiment
    given: Mapping[str, Given]
    """Every setting, without the seed."""
    config: BaseModel
    steps: int
    changes: Mapping[str, Any]
    """The settings that differ from the control's, with their values."""
    depth: int
    """Number of controls before it."""

    @property
    def control(self) -> str | None:
        """None for the study's first experiment."""
        return self.experiment.control

    @property
    def trained(self) -> bool:
        """Whether it has runs of its own."""
        return self.experiment.same_as is None and self.experiment.reads is None

    @property
    def reading(self) -> Reading:
        """How its metrics were read from the final state."""
        return Reading.of(self.experiment.reads) if self.experiment.reads else Reading()

    @property
    def values(self) -> dict[str, Any]:
        """The settings as plain values, by dotted key."""
        return dict(flat(self.config.model_dump(mode="json")))


@dataclass(frozen=True)
class StudyRun:
    """One experiment with one seed, as a run of the relay."""

    point: Point
    seed: int

    @property
    def name(self) -> str:
        """The run's name."""
        return f"{self.point.name}-s{self.seed}"


class UnknownExperiment(BadConfig):
    """Neither an experiment nor a sweep of the study has that name."""

    def __init__(self, name: str, study: str, known: Sequence[str]) -> None:
        self.name, self.near = name, nearest(name, known)
        hint = f" Did you mean {self.near}?" if self.near else ""
        super().__init__(f"Study {study} has no experiment or sweep {name}.{hint}")


class NotYours(BadConfig):
    """A setting that the study decides was given."""

    def __init__(self, key: str, study: str) -> None:
        super().__init__(f"Study {study} decides {key}. Remove it, or copy the study file and change it there.")
        self.key = key


@dataclass(frozen=True)
class Design:
    """A study whose every experiment is resolved."""

    file: StudyFile
    plugin: TaskPlugin
    points: Mapping[str, Point]
    project: str
    seeds: tuple[int, ...]

    @property
    def study(self) -> Study:
        """The file's content."""
        return self.file.study

    def chosen(self, names: Sequence[str]) -> list[Point]:
        """Experiments and those of sweeps, in the file's order; all without names. Raises UnknownExperiment (78)."""
        known: dict[str, Sequence[str]] = {**self.study.lists, **{name: [name] for name in self.points}}
        for name in names:
            if name not in known:
                raise UnknownExperiment(name, self.study.study, list(known))
        wanted = {one for name in names or self.points for one in known[name]}
        return [point for name, point in self.points.items() if name in wanted]

    def trained(self, points: Iterable[Point]) -> list[Point]:
        """The experiments to train for these: themselves, or those whose runs they use."""
        wanted = set[str]()
        for point in points:
            at: Point | None = point
            while at is not None:
                wanted.add(at.name)
                at = self.points[at.experiment.source] if at.experiment.source else None
        return [point for point in self.points.values() if point.name in wanted and point.trained]

    def runs(self, points: Iterable[Point]) -> list[StudyRun]:
        """The runs to train, in their order: seed by seed, controls first."""
        trained = sorted(self.trained(points), key=lambda point: point.depth)
        return [StudyRun(point, seed) for seed in self.seeds for point in trained]

    def run_of(self, point: Point, seed: int) -> StudyRun:
        """The run that holds an experiment's result."""
        while not point.trained and point.experiment.source:
            point = self.points[point.experiment.source]
        return StudyRun(point, seed)

    def parent(self, run: StudyRun) -> StudyRun | None:
        """The run that this one continues."""
        source = run.point.experiment.continues
        return self.run_of(self.points[source], run.seed) if source else None

    def readings(self, run: StudyRun) -> list[str]:
        """The further readings of the run's final state, as `evaluation.test_also` takes them."""
        users = [point for point in self.points.values() if self.run_of(point, run.seed) == run]
        return list(dict.fromkeys(point.experiment.reads for point in users if point.experiment.reads))

    def tests(self, run: StudyRun) -> list[str]:
        """The readings that are evaluated at the run's target, as their results are named."""
        return self.plugin.measures.splits.tests(map(Reading.of, self.readings(run)))

    def untested(self, run: StudyRun, state: RunState) -> list[str]:
        """The readings that a session can still evaluate; none for a run whose target was raised beyond the study's."""
        return [] if state.target_steps > run.point.steps else untested(state, self.tests(run), run.point.steps)

    def overrides(self, run: StudyRun, given: Iterable[str]) -> list[str]:
        """The run's settings as `key=value`: those that differ from the preset, and those in `given`, which a
        configuration file sets otherwise."""
        preset = dict(flat(self.plugin.preset(self.study.task).model_dump(mode="json")))
        own = {SEED: run.seed, "task": self.study.task}
        kept = {k: v for k, v in run.point.values.items() if v != preset.get(k) or k in set(given)} | own
        return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in kept.items()]

    def split(self, points: Iterable[Point], given: Iterable[str]) -> tuple[list[str], list[str]]:
        """Settings on the command line: those of the relay, and those that lead to data. Raises NotYours (78)."""
        relay, data = list[str](), list[str]()
        ours, changed = set(leaves(Settings)) - set(OWN), {key for point in points for key in point.changes}
        for text in given:
            key = text.lstrip("+~").partition("=")[0]
            if key not in ours and (not key.startswith("data.") or key in changed):
                raise NotYours(key, self.study.study)
            (relay if key in ours else data).append(text)
        return relay, data


def resolve(
    file: StudyFile,
    plugin: TaskPlugin,
    overrides: Mapping[str, Given] | None = None,
    steps: int | None = None,
    seeds: Sequence[int] = (),
) -> Design:
    """The study with every experiment resolved.

    overrides: settings that lead to data, in place of the file's. steps: of the first experiment; others follow in
    proportion, and the project's name changes. Raises BadStudy (78) with all faults.
    """
    made, study = _Resolving(file, plugin), file.study
    order = made.order()
    if not made.faults:
        made.resolve(order, overrides or {})
    if not made.faults:
        made.check_relations()
    if made.faults:
        raise BadStudy(file.name, tuple(sorted(made.faults, key=lambda one: one.line or 0)))
    points = {name: made.points[name] for name in study.experiments}
    if steps is not None:
        points = {k: replace(p, steps=max(1, round(p.steps * steps / study.steps))) for k, p in points.items()}
    project = study.study if steps in (None, study.steps) else f"{study.study}-{steps}"
    return Design(file, plugin, points, project, tuple(dict.fromkeys(seeds or study.seeds)))


def _given(values: Mapping[str, Value], origin: str) -> dict[str, Given]:
    return {key: Given(key, [*value] if isinstance(value, list) else value, origin) for key, value in values.items()}


@dataclass
class _Resolving:
    """Resolves experiments, each after those that it names, and notes faults."""

    file: StudyFile
    plugin: TaskPlugin
    points: dict[str, Point] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def fault(self, text: str, *where: str | int, near: str | None = None) -> None:
        self.faults.append(Fault(text, self.file.line(*where), near))

    def order(self) -> list[str]:
        """The experiments, each after those that it names. Notes unknown names and settings, and circles."""
        study, keys = self.file.study, set(leaves(self.plugin.model)) - {SEED, "task"}
        known = study.experiments
        settings: list[tuple[str, tuple[str | int, ...]]] = [(key, ("set", key)) for key in study.set]
        names: list[tuple[str, tuple[str | int, ...]]] = []
        for name, one in known.items():
            settings += [(key, ("experiments", name, "set", key)) for key in one.set]
            names += [(other, ("experiments", name, role)) for role, other in one.others.items()]
            if not NAME.fullmatch(f"{name}-s{max(study.seeds)}"):
                self.fault(f"{name}-s{max(study.seeds)} is not a valid name of a run.", "experiments", name)
        names += [(name, ("sweeps", sweep, n)) for sweep, of in study.lists.items() for n, name in enumerate(of)]
        names += [(name, ("cards", card, name)) for card, of in study.cards.items() for name in of]
        for key, where in settings:
            if key not in keys:
                self.fault(f"{key} is not a setting that an experiment may have.", *where, near=nearest(key, keys))
        for name, where in names:
            if name not in known:
                self.fault(f"there is no experiment {name}.", *where, near=nearest(name, known))
        try:
            return list(TopologicalSorter({name: one.others.values() for name, one in known.items()}).static_order())
        except CycleError as error:
            circle = error.args[1][::-1]
            self.fault(f"a circle of relations: {' → '.join(circle)}.", "experiments", circle[0])
            return []

    def resolve(self, order: Iterable[str], overrides: Mapping[str, Given]) -> None:
        """Resolve every experiment whose control has no fault."""
        study = self.file.study
        try:
            preset = flat(self.plugin.preset(study.task).model_dump(mode="json"))
        except BadConfig as error:
            self.fault(str(error), "task")
            return
        base = {key: Given(key, value, f"preset {study.task}") for key, value in preset}
        base |= _given(study.set, f"study {study.study}") | dict(overrides)
        for name in order:
            one = study.experiments[name]
            control = self.points.get(one.control or "")
            if control is None and one.control:
                continue
            own, steps = _given(one.set, f"experiment {name}"), one.steps or (control.steps if control else study.steps)
            try:
                if one.same_samples and control:
                    steps, own = self._same_samples(one, control, own)
                given = {**(control.given if control else base), **own}
                point = Point(name, one, given, validate(self.plugin.model, given), steps, {}, 0)
            except (BadSetting, _NotWhole) as error:
                self.fault(str(error), "experiments", name, "set")
                continue
            if control:
                point = replace(point, changes=self._changes(point, control, own), depth=control.depth + 1)
            self.points[name] = point

    def _same_samples(self, one: Experiment, control: Point, own: dict[str, Given]) -> tuple[int, dict[str, Given]]:
        """Steps, and settings with the warm-up, that see as many rows as the control. Raises _NotWhole."""
        of = self.file.study.samples
        if of is None or of.batch not in one.set:
            raise _NotWhole("same_samples needs the study's samples (batch and warmup), and the batch in set.")
        try:
            theirs, mine = int(control.values[of.batch]), int(str(one.set[of.batch]))
            counts = {"steps": control.steps, of.warmup: int(control.values[of.warmup])}
        except (KeyError, TypeError, ValueError):
            raise _NotWhole(f"same_samples needs whole numbers in {of.batch} and {of.warmup}.") from None
        if mine < 1:
            raise _NotWhole(f"{of.batch} must be at least 1.")
        for what, count in counts.items():
            if count * theirs % mine:
                raise _NotWhole(f"{count:,} {what} of {theirs:,} rows are no whole number of {mine:,} rows.")
        steps, warmup = (count * theirs // mine for count in counts.values())
        return steps, {of.warmup: Given(of.warmup, str(warmup), f"same samples as {control.name}")} | own

    def _changes(self, point: Point, control: Point, own: Mapping[str, Given]) -> dict[str, Any]:
        """The settings that differ from the control's; a fault unless they are those that the experiment names."""
        theirs, where = control.values, ("experiments", point.name, "set")
        changes = {key: value for key, value in point.values.items() if value != theirs.get(key)}
        for key in () if point.name in self.file.grown else sorted(own.keys() - changes.keys()):
            self.fault(f"{key} has the control's value.", *where, key)
        for key in sorted(changes.keys() - own.keys()):
            self.fault(f"{key} changes and is not named.", *where)
        return changes

    def check_relations(self) -> None:
        """Relations hold, and equal configurations have one. A point of a grid gets `same_as` by itself."""
        seen: dict[str, str] = {}
        for name in self.file.study.experiments:
            point, where = self.points[name], ("experiments", name)
            one, source = point.experiment, self.points.get(point.experiment.source or "")
            if source and (one.reads is None or point.reading.recursions is not None):
                differing = sorted(key for key, value in point.values.items() if value != source.values.get(key))
                if differing:
                    self.fault(f"it is said to be {source.name}, but differs in {', '.join(differing)}.", *where)
            if one.continues and source and point.steps <= source.steps:
                self.fault(f"steps must be more than those of {source.name}.", *where, "steps")
            if one.reads and source and not source.trained:
                self.fault(f"{source.name} is not trained, so there is nothing to read.", *where, "reads")
            twin = (
                seen.setdefault(json.dumps([point.values, point.steps], sort_keys=True), name) if not source else name
            )
            if twin != name and name in self.file.grown:
                self.points[name] = replace(point, experiment=one.model_copy(update={"same_as": twin}))
            elif twin != name:
                self.fault(f"its settings are those of {twin}: add `same_as: {twin}`.", *where)


class _NotWhole(Exception):
    """Steps or warm-up would not be whole numbers."""
