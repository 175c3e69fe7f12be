"""The ARC data of a configuration: from task files, from a folder of the reference, or generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from relay.torch import rng
from relay.torch.faults import DataError, TaskError
from relay.torch.rng import Stream
from storage.wording import counted
from trm.config import GENERATED, Data, TrainConfig
from trm.data.arc import folder as folders
from trm.data.arc import generate
from trm.data.arc.kept import draws_below
from trm.data.arc.rows import ArcData, held_out, of_build
from trm.data.arc.tasks import Task, read_subsets
from trm.data.arc.variants import Build, build
from trm.presets import SPLITS

_SHOWN = 5
"""Names in a line of `described`."""


@dataclass(frozen=True)
class ArcDatasets:
    """The splits of one build; the same interface as trm.tasks.Datasets."""

    made: Build
    train: ArcData
    valid: ArcData | None
    """The last pair of some training tasks, in the original variant; None if `data.held_out` is 0."""

    @cached_property
    def test(self) -> ArcData:
        """Test pairs in all variants. Raises DataError if there are none."""
        return of_build(self.made, self.made.test)

    def pinned(self, _config: TrainConfig) -> dict[str, str]:
        """What a run pins of its data."""
        return self.pinned_contents()

    def pinned_contents(self) -> dict[str, str]:
        """Hashes of the contents, and of the list of identifiers."""
        contents = {"train": self.train.content_hash, "test": self.made.content_hash(self.made.test)}
        every = contents | {"identifiers": self.made.names.hash}
        return {name: f"sha256:{value}" for name, value in every.items()}

    def split(self, name: str) -> ArcData | None:
        """One of `measures.SPLITS`; None if there is none."""
        if name == SPLITS.choosing:
            return self.valid
        return self.test if self.made.test.count else None


def load(config: TrainConfig, root: Path) -> ArcDatasets:
    """The data of a configuration; what takes long to draw is kept below `root`. Raises TaskError for settings that do
    not fit, DataError for unusable files."""
    made = _build(config, root)
    own = f"sha256:{made.names.hash}"
    if config.data.identifiers not in ("", own):
        raise TaskError(
            f"The run's list of identifiers is {config.data.identifiers}, this data's is {own}. A row of the puzzle "
            f"table belongs to one name of that list. Name the data that the run was trained with, or the same task "
            f"files, data.subsets, data.test_set, data.num_aug and data.max_tasks."
        )
    train, valid = _held_out(config, made)
    return ArcDatasets(made, train, valid)


def glance(config: TrainConfig) -> list[str]:
    """The subsets of the task files, read and checked. Raises TaskError, DataError."""
    subsets = read_subsets(Path(config.data.source).expanduser(), config.data.subsets, config.data.canvas)
    tested = subsets[_test_set(config, subsets)]
    counts = ", ".join(f"{name} {len(tasks):,}" for name, tasks in subsets.items())
    outputs = [pair.output for task in tested for pair in task.tests]
    known = "all known" if None not in outputs else "not all known: nothing can be scored"
    return [f"tasks: {counts}", f"test set: {counted(len(outputs), 'output')}, {known}"]


def _test_set(config: TrainConfig, subsets: Mapping[str, Sequence[Task]]) -> str:
    chosen = config.data.test_set or list(subsets)[-1]
    if chosen not in subsets:
        listed = ", ".join(subsets)
        raise TaskError(f"data.test_set={chosen} is not among the subsets {listed}. Add it to data.subsets.")
    return chosen


def has_files(config: TrainConfig) -> bool:
    """Whether the settings name data, or data that needs no files."""
    return bool(config.data.source) or config.data.train != GENERATED or config.task == "arc_small"


def _build(config: TrainConfig, root: Path) -> Build:
    data, side = config.data, config.data.canvas
    if data.train != GENERATED and not data.source:  # a session may remember a folder of an earlier one
        return _read_folder(data)
    if data.test != GENERATED and not data.source:
        raise TaskError(
            "ARC's test pairs come with the training data: leave data.test out, or name data.train's folder."
        )
    if data.source:
        subsets = read_subsets(Path(data.source).expanduser(), data.subsets, side)
    elif config.task == "arc_small":
        subsets = generate.subsets()
    else:
        raise TaskError(
            f"task={config.task} needs task files: set data.source to a folder with arc-agi_*_challenges.json, to a "
            f"folder with one JSON file for each task, or data.train to a built folder. task=arc_small needs no files."
        )
    test_set = _test_set(config, subsets)
    some = {name: tasks[: data.max_tasks] for name, tasks in subsets.items()}
    return build(some, test_set, data.num_aug, side, partial(draws_below, root))


def _read_folder(data: Data) -> Build:
    place = Path(data.train).expanduser()
    if data.test not in (GENERATED, data.train):
        raise TaskError(
            f"data.test={data.test} is not data.train={data.train}: both parts are of one build. Name it once."
        )
    if not place.is_dir():
        raise DataError(
            f"{place} is no folder. data.train names a folder in the reference's layout, with train and test."
        )
    made = folders.read(place)
    if made.side != data.canvas:
        raise TaskError(f"{place} has a canvas of {made.side}. Set data.canvas={made.side}.")
    return made


def _held_out(config: TrainConfig, made: Build) -> tuple[ArcData, ArcData | None]:
    split = made.train
    first = split.identifiers[split.variants[:-1]]
    tested = np.array([made.names.of(int(identifier)) in made.tested for identifier in first])
    free = np.flatnonzero(~tested & (np.diff(split.pairs) > 1))
    if not config.data.held_out or not len(free):
        return of_build(made, split), None
    order = rng.permutations(config.seed, 1, Stream.BUILD, 1, len(free))[0].numpy()
    chosen = np.sort(free[order[: config.data.held_out]])
    train, valid = held_out(split, chosen)
    return of_build(made, train), of_build(made, valid)


def identifiers_of(config: TrainConfig) -> int:
    """Rows of the puzzle table, estimated where the data is not there to be counted."""
    published = {"arc1": 876_406, "arc2": 1_191_730}
    tasks = sum(generate.EACH) * len(generate.RULES) if config.task not in published else 0
    return published.get(config.task) or 1 + tasks * (config.data.num_aug + 1)


def described(data: ArcDatasets) -> list[str]:
    """What was made, to print."""
    made, split = data.made, data.made.train
    lines = [
        f"identifiers: {len(made.names):,} with the blank one, sha256 {made.names.hash}",
        f"train: {counted(split.count, 'row')} of {counted(len(split.identifiers), 'variant')} of "
        f"{counted(len(split.pairs) - 1, 'task')}{_subsets(made)}",
        f"test: {counted(made.test.count, 'row')} of {counted(int(made.test.pairs[-1]), 'pair')} of "
        f"{counted(len(made.tested), 'task')}"
        + ("" if made.test.labelled else ", without solutions: nothing can be scored"),
    ]
    if data.valid:
        tasks = counted(data.valid.size, "training task")
        lines.append(f"held out: the last pair of each of {tasks}, to choose the best checkpoint")
    lines.append(f"trained on: {data.train.size:,} of the train rows, sha256 {data.train.content_hash}")
    if made.short:
        some = ", ".join(f"{name} {count:,}" for name, count in list(made.short.items())[:_SHOWN])
        lines.append(f"tasks that cannot fill their variants (few colors, or symmetric): {len(made.short):,}; {some}"
                     f"{', …' if len(made.short) > _SHOWN else ''}")  # fmt: skip
    lines += [f"OVERLAP: pairs of test task {ours} that {theirs} has, too: {n}" for ours, theirs, n in made.shared]
    return lines


def _subsets(made: Build) -> str:
    return f" ({', '.join(f'{name} {count:,}' for name, count in made.subsets.items())})" if made.subsets else ""


def write_folder(data: ArcDatasets, place: Path) -> list[str]:
    """The whole build as a folder in the reference's layout; returns lines to print."""
    return folders.write(data.made, place)
