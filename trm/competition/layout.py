"""The rows of a tasks file: variants of each task, rows of the puzzle table for them, and the order to solve them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trm.competition.weights import Trained
from trm.data.arc.rows import ArcData
from trm.data.arc.submission import RawTask
from trm.data.arc.tasks import Pair, Task, task_of
from trm.data.arc.variants import SEED, Names, Variant, drawn_for, names_of, offsets_of, split_of, words_of


@dataclass(frozen=True)
class Layout:
    """Tasks in the order of their file, each with its variants; the original is the first."""

    tasks: tuple[Task, ...]
    """Without test outputs, which are never read."""
    variants: tuple[tuple[Variant, ...], ...]
    table: Tensor
    """float32 (1 + variants of all tasks, width): row 0 is blank."""
    side: int
    unknown: tuple[str, ...]
    """Tasks that the list of identifiers does not name: their rows are the mean."""

    @cached_property
    def names(self) -> Names:
        """Of the rows of `table`."""
        return names_of(self.tasks, self.variants)

    @cached_property
    def questions(self) -> ArcData:
        """The test inputs in all variants."""
        return self._data([task.tests for task in self.tasks], moved=False)

    @cached_property
    def demonstrations(self) -> ArcData:
        """The demonstration pairs in all variants, to train on."""
        return self._data([task.demonstrations for task in self.tasks], moved=True)

    @cached_property
    def order(self) -> np.ndarray:
        """int64: the rows of `questions`, breadth first: all inputs in variant 0, then all that have a variant 1."""
        split = self.questions.split
        rows = np.arange(split.count)
        group = np.searchsorted(split.rows, rows, side="right") - 1
        variant = (rows - split.rows[group]) // np.diff(split.pairs)[group]
        return np.argsort(variant, kind="stable")

    def _data(self, groups: Sequence[Sequence[Pair]], moved: bool) -> ArcData:
        edges = np.cumsum([0, *map(len, self.variants)])
        ids = [np.arange(low, high) + 1 for low, high in pairwise(edges.tolist())]
        offsets = offsets_of(groups, self.variants, self.side, words_of(SEED)) if moved else None
        split = split_of(groups, ids, self.side, offsets)
        return ArcData(split, self.names, self.side, "")


def lay_out(path: Path, raw: Mapping[str, RawTask], trained: Trained, variants: int) -> Layout:
    """At most so many variants of each task. Raises DataError for a task that does not fit the canvas."""
    tasks = tuple(task_of(path, name, _without_answers(task), trained.side) for name, task in raw.items())
    known = {} if trained.names is None else {name: index for index, name in enumerate(trained.names.tasks)}
    unknown = [task for task in tasks if task.name not in known]
    drawn = {task.name: made for task, made in zip(unknown, drawn_for(unknown, variants - 1), strict=True)}
    chosen, rows = list[tuple[Variant, ...]](), [trained.table.new_zeros(1, trained.table.shape[1])]
    for task in tasks:
        if task.name in drawn:
            chosen.append(tuple(drawn[task.name]))
            rows.append(trained.mean.expand(len(chosen[-1]), -1))
            continue
        assert trained.names is not None, "only a list knows a task"
        found = np.flatnonzero(trained.names.task == known[task.name])[:variants] + 1
        chosen.append(tuple(trained.names.variant(int(identifier)) for identifier in found))
        rows.append(trained.table[torch.from_numpy(found)])
    return Layout(tasks, tuple(chosen), torch.cat(rows), trained.side, tuple(task.name for task in unknown))


def _without_answers(task: RawTask) -> dict[str, Any]:
    return dict(task) | {"test": [{"input": pair["input"]} for pair in task["test"]]}
