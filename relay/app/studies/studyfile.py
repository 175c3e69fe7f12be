"""Reads a study file: experiments that differ from a control in a few settings, sweeps, seeds. Knows the lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from relay.core.errors import BadConfig
from relay.core.ledger.frozen import MAX_RUNS
from relay.core.names import Name, nearest
from relay.core.settings.config import ReadingText, Section
from relay.core.settings.origins import composed
from relay.core.workload import Step
from storage.regular import is_there

Value = str | list[str] | None
"""A setting's value as it is written."""
Where = tuple[str | int, ...]
"""A place in a file: the keys that lead to it."""
Steps = Annotated[Step, Field(gt=0)]
Positive = Annotated[float, Field(gt=0)]


class Experiment(Section):
    """A configuration: that of its control, with the settings in `set`."""

    set: dict[str, Value] = Field(default={})
    control: Name | None = None
    """The experiment to compare with, whose settings this one inherits; unset: the study's first."""
    why: str = ""
    published: float | None = None
    """The published value of the study's first metric."""
    steps: Steps | None = None
    """Unset: the control's."""
    same_samples: bool = False
    """Steps and warm-up follow the batch, so that as many rows are seen as in the control."""
    same_as: Name | None = None
    """Another name of that experiment's configuration; it is trained once."""
    reads: ReadingText | None = None
    """Not trained: another reading of the final state of `of`."""
    of: Name | None = None
    """Unset: the control."""
    continues: Name | None = None
    """Trained on from the final checkpoint of that experiment, to `steps`."""

    @model_validator(mode="after")
    def _one_relation(self) -> Experiment:
        if sum(one is not None for one in (self.same_as, self.reads, self.continues)) > 1:
            raise ValueError("an experiment has one of same_as, reads and continues")
        if self.continues and self.steps is None:
            raise ValueError("an experiment that continues another one needs steps")
        return self

    @property
    def source(self) -> str | None:
        """The experiment whose run this one uses."""
        return self.same_as or self.continues or (self.of if self.reads else None)

    @property
    def others(self) -> dict[str, str]:
        """The experiments that it names, by role."""
        roles = {"control": self.control, "same_as": self.same_as, "of": self.of, "continues": self.continues}
        return {role: name for role, name in roles.items() if name is not None}


class Samples(Section):
    """The settings that `same_samples` reads and changes."""

    batch: str
    warmup: str


class Grid(Section):
    """All combinations of some values. Points are named `<sweep>_<value>_<value>`."""

    grid: Annotated[dict[str, Annotated[list[Value], Field(min_length=1)]], Field(min_length=1)]
    control: Name | None = None


class Study(Section):
    """One study file."""

    study: Name
    about: str
    task: str
    set: dict[str, Value] = Field(default={})
    """Settings of all experiments, on top of the task's preset."""
    steps: Steps
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1)] = (0,)
    test_rows: Annotated[int, Field(gt=0)]
    """Rows of the reported split that are evaluated once, at the target."""
    metrics: Annotated[dict[str, Literal["higher", "lower"]], Field(min_length=1)]
    """Names of a commit's metrics and which direction is better; the first is the usual one."""
    samples: Samples | None = None
    cards: dict[str, Annotated[dict[Name, Positive], Field(min_length=1)]] = Field(default={})
    """Measured milliseconds of a step, by card and experiment."""
    experiments: Annotated[dict[Name, Experiment], Field(min_length=1)]
    sweeps: dict[Name, list[Name] | Grid] = Field(default={})

    @property
    def first(self) -> str:
        """The experiment that others are compared with, unless they name another."""
        return next(iter(self.experiments))

    @property
    def metric(self) -> str:
        """The usual metric."""
        return next(iter(self.metrics))

    @property
    def lists(self) -> dict[str, list[str]]:
        """The sweeps as lists of experiments."""
        return {name: of for name, of in self.sweeps.items() if isinstance(of, list)}


@dataclass(frozen=True)
class Fault:
    """One fault of a file."""

    text: str
    line: int | None = None
    near: str | None = None
    """The known name closest to an unknown one."""

    def paragraph(self, name: str) -> str:
        """The fault with its place."""
        where = name if self.line is None else f"{name}:{self.line}"
        return f"{where}: {self.text}{f' Did you mean {self.near}?' if self.near else ''}"


class BadStudy(BadConfig):
    """A study file has faults."""

    def __init__(self, name: str, faults: Sequence[Fault]) -> None:
        more = f" And {len(faults) - 1:,} more." if len(faults) > 1 else ""
        super().__init__(f"{faults[0].paragraph(name)}{more}")
        self.name, self.faults = name, tuple(faults)


class NoStudy(BadConfig):
    """There is neither a file nor a shipped study of that name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.near = name, nearest(name, known)
        hint = f"Did you mean {self.near}?" if self.near else f"Give a file, or one of {', '.join(known)}."
        super().__init__(f"There is no study {name}. {hint}")


@dataclass(frozen=True)
class StudyFile:
    """A study with what its file adds: name, hash, and the line of each place."""

    study: Study
    name: str
    sha256: str
    lines: Mapping[Where, int]
    grown: frozenset[str] = frozenset()
    """Experiments that a grid added."""

    def line(self, *where: str | int) -> int | None:
        """The line of a place, or of the closest place around it."""
        return _line(self.lines, where)


def _line(lines: Mapping[Where, int], where: Where) -> int | None:
    return next((lines[where[:n]] for n in range(len(where), 0, -1) if where[:n] in lines), None)


def shipped() -> dict[str, Traversable]:
    """The studies that are part of the program, by name."""
    folder = files("relay.app.models") / "studies"
    return {one.name.removesuffix(".yaml"): one for one in sorted(folder.iterdir(), key=lambda one: one.name)}


def load(name: str, folder: Path) -> StudyFile:
    """A file, or a shipped study by its name. Raises NoStudy, BadStudy (78)."""
    path, known = folder / name, shipped()
    try:
        place: Traversable | None = path if is_there(path) else known.get(name)
        if place is None:
            raise NoStudy(name, list(known))
        return parse(place.read_bytes(), place.name)
    except OSError as error:
        raise BadConfig(f"Cannot read the study {path}: {error.strerror}.") from error


def parse(data: bytes, name: str) -> StudyFile:
    """Raises BadStudy (78) with every fault of the file's form."""
    lines: dict[Where, int] = {}
    try:
        root = composed(data.decode())
        study = Study.model_validate(_plain(root, (), lines) if root else {})
    except RecursionError:
        raise BadStudy(name, [Fault("it nests too deeply.")]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadStudy(name, [Fault(f"{' '.join(str(error).split())}.")]) from error
    except _Twice as error:
        raise BadStudy(name, [Fault(f"{error} is given twice.", error.line)]) from error
    except ValidationError as error:
        raise BadStudy(name, list(_faults(error, lines))) from error
    return _completed(study, name, hashlib.sha256(data).hexdigest(), lines)


class _Twice(ValueError):
    """A key is given twice."""

    def __init__(self, key: str, line: int) -> None:
        super().__init__(key)
        self.line = line


def _plain(node: yaml.Node, where: Where, lines: dict[Where, int]) -> Any:
    """The node's content, scalars as written: `5e-4` and `on` stay texts, which the settings' types read."""
    lines.setdefault(where, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            text, line = str(key.value), key.start_mark.line + 1
            if text in found:
                raise _Twice(text, line)
            lines[(*where, text)] = line
            found[text] = _plain(value, (*where, text), lines)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*where, n), lines) for n, item in enumerate(node.value)]
    return None if node.tag == "tag:yaml.org,2002:null" else str(node.value)


def _faults(error: ValidationError, lines: Mapping[Where, int]) -> Iterator[Fault]:
    for problem in error.errors(include_url=False):
        where, near = problem["loc"], None
        message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
        if problem["type"] == "extra_forbidden":
            model = Experiment if where[0] == "experiments" else Study
            message, near = "is not a key of a study file", nearest(str(where[-1]), model.model_fields)
        yield Fault(f"{'.'.join(map(str, where))}: {message}.", _line(lines, where), near)


def _completed(study: Study, name: str, sha256: str, lines: Mapping[Where, int]) -> StudyFile:
    """Every grid as a list of experiments, which are added, and every control named."""
    experiments, sweeps = dict(study.experiments), dict(study.sweeps)
    for sweep, grid in study.sweeps.items():
        if isinstance(grid, Grid):
            at = _line(lines, ("sweeps", sweep))
            if (count := prod(map(len, grid.grid.values()))) > MAX_RUNS:
                text = f"sweep {sweep} has {count:,} points, and a store lists at most {MAX_RUNS} runs."
                raise BadStudy(name, [Fault(text, at)])
            sweeps[sweep] = keys = []
            for values in product(*grid.grid.values()):
                key, point = "_".join([sweep, *map(_word, values)]), dict(zip(grid.grid, values, strict=True))
                if key in keys or experiments.setdefault(key, Experiment(set=point, control=grid.control)).set != point:
                    raise BadStudy(name, [Fault(f"two points have the name {key}.", at)])
                keys.append(key)
    for key, one in experiments.items():
        control = one.control or (study.first if key != study.first else None)
        update = {"control": control, "of": (one.of or control) if one.reads else one.of}
        experiments[key] = one.model_copy(update=update)
    whole = study.model_copy(update={"experiments": experiments, "sweeps": sweeps})
    return StudyFile(whole, name, sha256, lines, frozenset(experiments) - set(study.experiments))


def _word(value: Value) -> str:
    """A setting's value as part of a run's name."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in str(value).lower())
