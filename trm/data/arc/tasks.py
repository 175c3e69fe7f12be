"""Reads ARC tasks from files: Kaggle's challenges and solutions, or a folder with one JSON file a task.

A test input whose solution is not given has no output: its label is absent, and nothing is scored.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay.torch.faults import DataError, TaskError
from storage.regular import is_there, regular
from storage.wording import counted

SIDE = 30
"""Greatest height and width of a grid."""
COLORS = 10
CHALLENGES, SOLUTIONS = "_challenges.json", "_solutions.json"
_NAMED = re.compile(r"(?:(?P<prefix>.*)_)?(?P<subset>[A-Za-z0-9-]+)_challenges\.json")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_KINDS = {"train": "demonstration", "test": "test"}
_MOST_BYTES = 1 << 28

Grid = tuple[tuple[int, ...], ...]
"""Rows of colors 0 to 9."""


class BadTask(DataError):
    """A malformed task file: which file, task and pair, and what is wrong with it."""

    def __init__(self, file: Path, fault: str, fix: str, task: str | None = None, pair: str | None = None) -> None:
        """pair: like 'demonstration 2, output'."""
        where = ", ".join([str(file), *([f"task {task}"] if task else []), *([pair] if pair else [])])
        super().__init__(f"{where}: {fault}. {fix}")
        self.file, self.task, self.pair, self.fault = file, task, pair, fault


@dataclass(frozen=True)
class Pair:
    """An input, and its output if it is known."""

    input: Grid
    output: Grid | None


@dataclass(frozen=True)
class Task:
    """One task of a subset. `order`: its kinds of pairs as the file has them, which decides the order of rows."""

    name: str
    demonstrations: tuple[Pair, ...]
    tests: tuple[Pair, ...]
    order: tuple[str, ...] = ("train", "test")

    def pairs(self) -> tuple[Pair, ...]:
        """All, in the file's order."""
        kinds = {"train": self.demonstrations, "test": self.tests}
        return tuple(pair for kind in self.order for pair in kinds[kind])


def read_subsets(source: Path, subsets: Sequence[str], side: int = SIDE) -> dict[str, list[Task]]:
    """The tasks of the subsets, in the order given. No subset: all that the source has.

    source: a folder of Kaggle's files, their common prefix, one of these files, a folder with a JSON file for each
    task, a folder of such folders, or one task's file. Raises BadTask or another DataError for the files, TaskError for
    an unknown subset or a task that two of them share.
    """
    try:
        found = _sources(source)
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error.strerror or error}. Check data.source.") from error
    wanted = list(subsets) or list(found)
    for name in wanted:
        if name not in found:
            near = difflib.get_close_matches(name, found, n=1, cutoff=0)[0]
            raise TaskError(
                f"{source} has no subset {name!r}. Did you mean {near}? It has {', '.join(found)}: set data.subsets."
            )
    if len(set(wanted)) < len(wanted):
        raise TaskError(f"data.subsets names a subset twice: {', '.join(wanted)}. Name each once.")
    read = {name: _read(found[name], side) for name in wanted}
    _check_apart(read)
    return read


def _sources(source: Path) -> dict[str, Path]:
    """A file of challenges, a task's file, or a folder of them, by subset."""
    if is_there(source):
        named = _NAMED.fullmatch(source.name)
        return {named["subset"] if named else source.parent.name: source}
    folder, prefix = (source, None) if source.is_dir() else (source.parent, source.name)
    names = sorted(path.name for path in folder.glob(f"*{CHALLENGES}")) if folder.is_dir() else []
    found = dict[str, Path]()
    for named in filter(None, map(_NAMED.fullmatch, names)):
        if prefix is not None and named["prefix"] != prefix:
            continue
        if named["subset"] in found:
            both = f"{found[named['subset']].name} and {named[0]}"
            raise TaskError(f"{source} has {both}. Name one prefix: data.source={folder / named['prefix']}.")
        found[named["subset"]] = folder / named[0]
    if not found and prefix is None:
        inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and any(path.glob("*.json"))]
        found = {path.name: path for path in inner} or ({folder.name: folder} if any(folder.glob("*.json")) else {})
    if not found:
        raise DataError(
            f"{source} holds no ARC tasks. data.source names a folder of *{CHALLENGES} files, their common prefix, or "
            f"a folder with one JSON file for each task."
        )
    return found


def _read(path: Path, side: int) -> list[Task]:
    if path.is_dir():
        return [task_of(file, file.stem, _json(file), side) for file in sorted(path.glob("*.json"))]
    if not path.name.endswith(CHALLENGES):
        return [task_of(path, path.stem, _json(path), side)]
    challenges = _json(path)
    if not isinstance(challenges, dict) or not challenges:
        raise BadTask(path, "it holds no tasks", "Download the file again.")
    answers = path.with_name(path.name.removesuffix(CHALLENGES) + SOLUTIONS)
    tasks = [task_of(path, name, raw, side) for name, raw in challenges.items()]
    return _solved(tasks, answers, side) if answers.exists() or answers.is_symlink() else tasks


def _json(path: Path) -> Any:
    """The file's content. A key that comes twice is an error: only the last of its values would be seen."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise BadTask(path, f"{twice!r:.100} comes twice", "Remove one of the two.", task=twice[:80])
        return made

    try:
        if regular(path).stat().st_size > _MOST_BYTES:
            raise BadTask(path, f"it has more than {_MOST_BYTES:,} bytes", "Is this the right file?")
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}. Check data.source.") from error
    except json.JSONDecodeError as error:
        fault = f"it is not complete JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        raise BadTask(path, fault, "Download or copy the file again.") from None
    except DataError:
        raise
    except (ValueError, RecursionError) as error:  # ValueError: no UTF-8, or a number of thousands of digits
        raise BadTask(path, f"it is not JSON: {type(error).__name__}", "Download or copy the file again.") from None


def task_of(path: Path, name: str, raw: Any, side: int) -> Task:
    """One task of a file, checked. Raises BadTask."""
    if not _NAME.fullmatch(name):
        raise BadTask(path, f"{name!r:.100} cannot be a task's name", "Use letters, digits, '.', '_' and '-'.")
    if not isinstance(raw, dict) or not {"train", "test"} <= raw.keys():
        raise BadTask(path, "a task has the lists train and test", "Is this an ARC task?", name)
    order = tuple(kind for kind in raw if kind in _KINDS)
    kinds = {kind: tuple(_pairs(path, name, kind, raw[kind], side)) for kind in order}
    return Task(name, kinds["train"], kinds["test"], order)


def raw_task(task: Task) -> dict[str, list[dict[str, list[list[int]]]]]:
    """The task as files hold it, without unknown outputs."""

    def raw(pair: Pair) -> dict[str, list[list[int]]]:
        parts = {"input": pair.input, "output": pair.output}
        return {name: list(map(list, grid)) for name, grid in parts.items() if grid is not None}

    kinds = {"train": task.demonstrations, "test": task.tests}
    return {kind: [raw(pair) for pair in kinds[kind]] for kind in task.order}


def _pairs(path: Path, name: str, kind: str, raw: Any, side: int) -> Iterable[Pair]:
    if not isinstance(raw, list) or not raw:
        raise BadTask(path, f"it has no {_KINDS[kind]} pair", "Every task needs at least one of each kind.", name)
    for number, one in enumerate(raw, 1):
        pair = f"{_KINDS[kind]} {number}"
        needed = ("input", "output") if kind == "train" else ("input",)
        missing = [key for key in needed if not isinstance(one, dict) or key not in one]
        if missing:
            raise BadTask(path, f"the {missing[0]} is missing", "Add it, or remove the pair.", name, pair)
        question = _grid(path, name, f"{pair}, input", one["input"], side)
        answer = one.get("output")
        yield Pair(question, None if answer is None else _grid(path, name, f"{pair}, output", answer, side))


def _grid(path: Path, name: str, pair: str, raw: Any, side: int) -> Grid:
    fault = _fault(raw, side)
    if fault:
        fix = f"A grid is 1 to {side} rows of equal length 1 to {side}, of whole numbers 0 to 9."
        if "rows" in fault or "columns" in fault:
            fix += " data.canvas sets the limit, 30 at most."
        raise BadTask(path, fault, fix, name, pair)
    return tuple(tuple(row) for row in raw)


def _fault(raw: Any, side: int) -> str | None:
    if not isinstance(raw, list) or not raw or not all(isinstance(row, list) for row in raw):
        return "it is not a list of rows"
    if len(raw) > side:
        return f"it has {len(raw)} rows"
    if not raw[0]:
        return "it has an empty row"
    if len(raw[0]) > side:
        return f"it has {len(raw[0])} columns"
    for number, row in enumerate(raw, 1):
        if len(row) != len(raw[0]):
            return f"row {number} has {counted(len(row), 'cell')}, the first row {len(raw[0])}"
        odd = [cell for cell in row if type(cell) is not int or not 0 <= cell < COLORS]
        if odd:
            return f"row {number} holds {odd[0]!r:.40}"
    return None


def _solved(tasks: list[Task], path: Path, side: int) -> list[Task]:
    """The tasks with the outputs of a file of solutions, which must be exactly theirs."""
    answers = _json(path)
    if not isinstance(answers, dict):
        raise BadTask(path, "it is not an object of solutions by task", "Download the file again.")
    known = {task.name for task in tasks}
    fix = "The solutions must belong to the challenges next to them. Take both from one download, or remove this file."
    if missing := [task.name for task in tasks if task.name not in answers]:
        raise BadTask(path, f"it lacks the solution of {counted(len(missing), 'task')}", fix, missing[0])
    if surplus := [name for name in answers if name not in known]:
        raise BadTask(path, f"it has {counted(len(surplus), 'solution')} of unknown tasks", fix, str(surplus[0])[:80])
    return [_answered(task, answers[task.name], path, fix, side) for task in tasks]


def _answered(task: Task, grids: Any, path: Path, fix: str, side: int) -> Task:
    if not isinstance(grids, list) or len(grids) != len(task.tests):
        found = counted(len(grids), "solution") if isinstance(grids, list) else "no list of solutions"
        raise BadTask(path, f"it has {found} for {counted(len(task.tests), 'test input')}", fix, task.name)
    tests = []
    for number, (pair, raw) in enumerate(zip(task.tests, grids, strict=True), 1):
        answer = _grid(path, task.name, f"test {number}, output", raw, side)
        if pair.output not in (None, answer):
            raise BadTask(path, "it differs from the output in the challenges", fix, task.name, f"test {number}")
        tests.append(Pair(pair.input, answer))
    return Task(task.name, task.demonstrations, tuple(tests), task.order)


def _check_apart(read: Mapping[str, Sequence[Task]]) -> None:
    """A table row belongs to one task, so a name stands in one subset only."""
    where = dict[str, str]()
    for subset, tasks in read.items():
        shared = [task.name for task in tasks if task.name in where]
        if shared:
            raise TaskError(
                f"The subsets {where[shared[0]]} and {subset} share {counted(len(shared), 'task')}, {shared[0]} "
                f"first. Leave one of them out of data.subsets: the test pairs of one side would be training data of "
                f"the other."
            )
        where |= dict.fromkeys((task.name for task in tasks), subset)
