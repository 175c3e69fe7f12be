"""Resolves a study: settings, steps and relations of each experiment, and its runs. Finds every fault at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from relay.app.models.plugin import TaskPlugin
from relay.app.studies.studyfile import BadStudy, Experiment, Fault, Study, StudyFile, Value
from relay.core.errors import BadConfig
from relay.core.names import NAME, nearest
from relay.core.settings.config import Settings, flat, leaves
from relay.core.settings.origins import BadSetting, Given
from relay.core.settings.validating import check_known, validate
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
    control: str | None
    """None for the study's first experiment."""
    changes: Mapping[str, Any]
    """The settings that differ from the control's, with their values."""
    place: tuple[int, int]
    """(number of controls before it, position in the file)."""

    @property
    def trained(self) -> bool:
        """Whether it has runs of its own."""
        return self.experiment.same_as is None and self.experiment.reads is None

    @property
    def reading(self) -> Reading:
        """How its metrics were read from the final state."""
        return Reading.of(self.experiment.reads) if self.experiment.reads else Reading()

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
        close = nearest(name, known)
        super().__init__(
            f"Study {study} has no experiment or sweep {name}.{f' Did you mean {close}?' if close else ''}"
        )
        self.name, self.near = name, close


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
        """Experiments, by their names and those of sweeps, in the file's order; all without names. Raises
        UnknownExperiment (78)."""
        sweeps, wanted = self.study.sweeps, set[str]()
        for name in names or self.points:
            if name not in self.points and name not in sweeps:
                raise UnknownExperiment(name, self.study.study, [*self.points, *sweeps])
            found = sweeps.get(name, [name])
            wanted.update([name] if name in self.points else [str(one) for one in found])
        return [point for name, point in self.points.items() if name in wanted]

    def trained(self, points: Iterable[Point]) -> list[Point]:
        """The experiments to train for these: themselves, or those whose runs they use."""
        wanted = set[str]()
        for point in points:
            name: str | None = point.name
            while name is not None and name not in wanted:
                wanted.add(name)
                name = self.points[name].experiment.source
        return [point for point in self.points.values() if point.name in wanted and point.trained]

    def runs(self, points: Iterable[Point]) -> list[StudyRun]:
        """The runs to train, in their order: seed by seed, controls first."""
        trained = sorted(self.trained(points), key=lambda point: point.place)
        return [StudyRun(point, seed) for seed in self.seeds for point in trained]

    def run_of(self, point: Point, seed: int) -> StudyRun:
        """The run that holds an experiment's result."""
        while not point.trained:
            source = point.experiment.source
            assert source is not None
            point = self.points[source]
        return StudyRun(point, seed)

    def parent(self, run: StudyRun) -> StudyRun | None:
        """The run that this one continues."""
        source = run.point.experiment.continues
        return self.run_of(self.points[source], run.seed) if source else None

    def readings(self, run: StudyRun) -> list[str]:
        """The further readings of the run's final state, as `evaluation.test_also` takes them."""
        found = [
            point.experiment.reads
            for point in self.points.values()
            if point.experiment.reads and self.run_of(point, run.seed).point is run.point
        ]
        return list(dict.fromkeys(found))

    def overrides(self, run: StudyRun, given: Iterable[str]) -> list[str]:
        """The run's settings as `key=value`: those that differ from the preset, and those in `given`, which a
        configuration file sets otherwise."""
        point = run.point
        preset = dict(flat(self.plugin.preset(self.study.task).model_dump(mode="json")))
        values = point.values() | {SEED: run.seed, "task": self.study.task}
        kept = [key for key, value in values.items() if value != preset.get(key) or key in set(given) | {"task", SEED}]
        return [f"{key}={_text(values[key])}" for key in kept]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _given(values: Mapping[str, Value], origin: str) -> dict[str, Given]:
    return {key: Given(key, [*value] if isinstance(value, list) else value, origin) for key, value in values.items()}


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
    made = _Resolving(file, plugin, overrides or {})
    if not made.faults:
        made.all()
    if made.faults:
        raise BadStudy(file.name, tuple(sorted(made.faults, key=lambda one: one.line or 0)))
    study, points = file.study, made.points
    project = study.study if steps in (None, study.steps) else f"{study.study}-{steps}"
    if steps is not None:
        points = {
            name: replace(point, steps=max(1, round(point.steps * steps / study.steps)))
            for name, point in points.items()
        }
    return Design(file, plugin, points, project, tuple(seeds) or study.seeds)


def split_overrides(design: Design, points: Iterable[Point], given: Iterable[str]) -> tuple[list[str], list[str]]:
    """Settings on the command line: those of the relay, and those that lead to data. Raises NotYours (78)."""
    ours, data = leaves(Settings), list[str]()
    relay = list[str]()
    of_experiments = {key for point in points for key in point.changes}
    for text in given:
        key = text.lstrip("+~").partition("=")[0]
        if key in ours and key not in OWN:
            relay.append(text)
        elif key.startswith("data.") and key not in of_experiments:
            data.append(text)
        else:
            raise NotYours(key, design.study.study)
    return relay, data


@dataclass
class _Resolving:
    """Resolves experiments after those that they name, and notes faults."""

    file: StudyFile
    plugin: TaskPlugin
    overrides: Mapping[str, Given]
    points: dict[str, Point] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        study, keys = self.file.study, leaves(self.plugin.model)
        for key in study.set:
            self._known_setting(key, keys, "set", key)
        for name, one in study.experiments.items():
            where = ("experiments", name)
            for key in one.set:
                self._known_setting(key, keys, *where, "set", key)
            for role in ("control", "same_as", "of", "continues"):
                if (other := getattr(one, role)) is not None:
                    self._known_name(other, study.experiments, *where, role)
            longest = f"{name}-s{max(study.seeds)}"
            if not NAME.fullmatch(longest):
                self._fault(f"{longest} is not a valid name of a run.", *where)
        for sweep, names in study.sweeps.items():
            for n, name in enumerate(names if isinstance(names, list) else ()):
                self._known_name(name, study.experiments, "sweeps", sweep, n)
        for card, measured in study.cards.items():
            for name in measured:
                self._known_name(name, study.experiments, "cards", card, name)
        if not self.faults:
            self._find_circles()

    def all(self) -> None:
        """Resolve every experiment, then compare them."""
        study = self.file.study
        try:
            preset = flat(self.plugin.preset(study.task).model_dump(mode="json"))
        except BadConfig as error:
            self._fault(str(error), "task")
            return
        origin = f"study {study.study}"
        self.base = {key: Given(key, value, f"preset {study.task}") for key, value in preset}
        self.base |= _given(study.set, origin) | dict(self.overrides)
        for name in study.experiments:
            self._point(name)
        if not self.faults:
            self._check_relations()

    def _fault(self, text: str, *where: str | int, near: str | None = None) -> None:
        self.faults.append(Fault(text, self.file.line(*where), near))

    def _known_setting(self, key: str, keys: Sequence[str], *where: str | int) -> None:
        try:
            check_known(Given(key, "", "study"), [key for key in keys if key not in (SEED, "task")])
        except BadSetting as error:
            self._fault(f"{key} is not a setting that an experiment may have.", *where, near=error.near)

    def _known_name(self, name: str, known: Iterable[str], *where: str | int) -> None:
        if name not in set(known):
            self._fault(f"there is no experiment {name}.", *where, near=nearest(name, known))

    def _needs(self, name: str) -> Iterator[str]:
        one = self.file.study.experiments[name]
        yield from filter(None, (one.control, one.same_as, one.of, one.continues))

    def _find_circles(self) -> None:
        done = set[str]()

        def visit(name: str, path: tuple[str, ...]) -> None:
            if name in path:
                circle = [*path[path.index(name) :], name]
                self._fault(f"a circle of relations: {' → '.join(circle)}.", "experiments", name)
                done.update(circle)
            elif name not in done:
                for other in self._needs(name):
                    visit(other, (*path, name))
                done.add(name)

        for name in self.file.study.experiments:
            visit(name, ())

    def _point(self, name: str) -> Point | None:
        """The experiment, after its control; None if one of them has a fault."""
        if name in self.points:
            return self.points[name]
        study, where = self.file.study, ("experiments", name)
        one = study.experiments[name]
        control = self._point(one.control) if one.control else None
        if control is None and one.control:
            return None
        before = control.given if control else self.base
        own = _given(one.set, f"experiment {name}")
        steps = one.steps or (control.steps if control else study.steps)
        try:
            if one.same_samples and control:
                steps, follow = self._same_samples(name, one, control)
                own = follow | own
            given = {**before, **own}
            config = validate(self.plugin.model, given)
        except (BadSetting, _NotWhole) as error:
            self._fault(str(error), *where, "set")
            return None
        place = (control.place[0] + 1 if control else 0, len(self.points))
        made = Point(name, one, given, config, steps, control.name if control else None, {}, place)
        self.points[name] = made = replace(made, changes=self._changes(made, control, own))
        return made

    def _same_samples(self, name: str, one: Experiment, control: Point) -> tuple[int, dict[str, Given]]:
        """Steps and warm-up that see as many rows as the control. Raises _NotWhole."""
        of = self.file.study.samples
        if of is None or of.batch not in one.set:
            raise _NotWhole("same_samples needs the study's samples (batch and warmup), and the batch in set.")
        theirs, mine = int(control.values()[of.batch]), int(str(one.set[of.batch]))
        found = {}
        for what, count in (("steps", control.steps), (of.warmup, int(control.values()[of.warmup]))):
            if count * theirs % mine:
                raise _NotWhole(f"{count:,} {what} of {theirs:,} rows are no whole number of {mine:,} rows.")
            found[what] = count * theirs // mine
        origin = f"same samples as {control.name}"
        return found["steps"], {of.warmup: Given(of.warmup, str(found[of.warmup]), origin)}

    def _changes(self, made: Point, control: Point | None, own: Mapping[str, Given]) -> dict[str, Any]:
        """The settings that differ from the control's; a fault unless they are those that the experiment names."""
        if control is None:
            return {}
        mine, theirs = made.values(), control.values()
        changes = {key: value for key, value in mine.items() if value != theirs.get(key)}
        of_grid = made.name not in self.file.study.experiments or ("experiments", made.name) not in self.file.lines
        for key in () if of_grid else sorted(own.keys() - changes.keys()):
            self._fault(f"{key} has the control's value.", "experiments", made.name, "set", key)
        for key in sorted(changes.keys() - own.keys()):
            self._fault(f"{key} changes and is not named.", "experiments", made.name, "set")
        return changes

    def _check_relations(self) -> None:
        seen: dict[str, str] = {}
        for name, point in list(self.points.items()):
            one, where = point.experiment, ("experiments", name)
            for other in filter(None, (one.same_as, one.continues)):
                self._check_equal(point, self.points[other], *where)
            if one.continues and point.steps <= self.points[one.continues].steps:
                self._fault(f"steps must be more than those of {one.continues}.", *where, "steps")
            if one.reads and (source := self.points[str(one.source)]) and not source.trained:
                self._fault(f"{source.name} is not trained, so there is nothing to read.", *where, "reads")
            if one.reads and point.reading.recursions is not None:
                self._check_equal(point, self.points[str(one.source)], *where)
            key = json.dumps([point.values(), point.steps], sort_keys=True)
            if point.trained and not one.continues and (twin := seen.setdefault(key, name)) != name:
                self._twin(point, twin)

    def _twin(self, point: Point, twin: str) -> None:
        """Two equal configurations: a fault, except for a point of a grid, which is the same as the other."""
        if ("experiments", point.name) in self.file.lines:
            self._fault(f"its settings are those of {twin}: add `same_as: {twin}`.", "experiments", point.name)
        else:
            same = point.experiment.model_copy(update={"same_as": twin})
            self.points[point.name] = replace(point, experiment=same)

    def _check_equal(self, point: Point, other: Point, *where: str) -> None:
        mine, theirs = point.values(), other.values()
        differing = sorted(key for key in mine if mine[key] != theirs.get(key))
        if differing:
            self._fault(f"it is said to be {other.name}, but differs in {', '.join(differing)}.", *where)


class _NotWhole(Exception):
    """Steps or warm-up would not be whole numbers."""
