"""Task files: every shape gives the same tasks, and every fault is named by file, task and pair."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.torch.faults import DataError, TaskError
from tests.facts import raising
from tests.trm.data.arc import files
from trm.data.arc.tasks import BadTask, read_subsets


def test_every_shape_gives_the_same_tasks(tmp_path: Path) -> None:
    """Kaggle's folder, prefix and single file; GitHub's folder, folder of folders and single file."""
    (name, some), (other, more) = files.tasks().items()
    challenges = files.kaggle(tmp_path / "kaggle", name, some)
    files.kaggle(tmp_path / "kaggle", other, more)
    files.github(tmp_path / "git" / "data" / name, some)
    files.github(tmp_path / "git" / "data" / other, more)
    assert read_subsets(tmp_path / "kaggle", [other, name]) == {other: more, name: some}
    assert list(read_subsets(tmp_path / "kaggle", [other, name])) == [other, name], "the order decides the draws"
    assert read_subsets(tmp_path / "kaggle" / "arc-agi", [name]) == {name: some}
    assert read_subsets(challenges, []) == {name: some}
    by_name = sorted(some, key=lambda task: task.name)
    assert read_subsets(tmp_path / "git" / "data", [name]) == {name: by_name}
    assert read_subsets(tmp_path / "git" / "data" / name, []) == {name: by_name}
    assert read_subsets(tmp_path / "git" / "data" / name / f"{some[0].name}.json", []) == {name: [some[0]]}


def test_without_solutions_there_are_no_labels(tmp_path: Path) -> None:
    name, some = next(iter(files.tasks().items()))
    files.kaggle(tmp_path, name, some, solutions=False)
    (read,) = read_subsets(tmp_path, [name]).values()
    assert all(pair.output is None for task in read for pair in task.tests)
    assert [task.demonstrations for task in read] == [task.demonstrations for task in some]


Change = Callable[[dict[str, Any]], None]


def put(kind: str, which: int, key: str, value: object) -> Change:
    def change(task: dict[str, Any]) -> None:
        task[kind][which][key] = value

    return change


def drop(kind: str, which: int, key: str) -> Change:
    return lambda task: task[kind][which].pop(key)


FAULTS: dict[str, tuple[Change, str | None, str]] = {
    "31 rows": (put("train", 1, "output", [[0]] * 31), "demonstration 2, output", "31 rows"),
    "31 columns": (put("test", 0, "input", [[0] * 31]), "test 1, input", "31 columns"),
    "color 10": (put("train", 0, "input", [[1, 10]]), "demonstration 1, input", "10"),
    "negative": (put("train", 0, "input", [[1, -1]]), "demonstration 1, input", "-1"),
    "float": (put("train", 0, "output", [[1.0]]), "demonstration 1, output", "1.0"),
    "boolean": (put("train", 0, "output", [[True]]), "demonstration 1, output", "True"),
    "text": (put("train", 0, "output", [["1"]]), "demonstration 1, output", "'1'"),
    "null": (put("train", 0, "output", [[None]]), "demonstration 1, output", "None"),
    "ragged": (put("train", 0, "input", [[1, 2], [3]]), "demonstration 1, input", "row 2"),
    "empty row": (put("train", 0, "input", [[]]), "demonstration 1, input", "empty row"),
    "empty grid": (put("train", 0, "input", []), "demonstration 1, input", "rows"),
    "no grid": (put("train", 0, "input", 3), "demonstration 1, input", "rows"),
    "no input": (drop("test", 1, "input"), "test 2", "input"),
    "no output": (drop("train", 0, "output"), "demonstration 1", "output"),
    "no demonstrations": (lambda task: task.update(train=[]), None, "demonstration"),
    "no tests": (lambda task: task.update(test=[]), None, "test"),
    "no lists": (lambda task: task.pop("train"), None, "train"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("shape", ["kaggle", "github"])
def test_a_malformed_grid_is_named(tmp_path: Path, fault: str, shape: str) -> None:
    change, pair, fact = FAULTS[fault]
    name, some = next(iter(files.tasks().items()))
    bad = some[2].name
    if shape == "kaggle":
        path = files.kaggle(tmp_path, name, some)
        raw = json.loads(path.read_text())
        change(raw[bad])
    else:
        path = files.github(tmp_path, some) / f"{bad}.json"
        raw = json.loads(path.read_text())
        change(raw)
    path.write_text(json.dumps(raw))
    with raising(BadTask, path, bad, fact) as caught:
        read_subsets(tmp_path, [])
    assert (caught.value.file, caught.value.task, caught.value.pair) == (path, bad, pair)


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2", "{}", "[]", '"text"', "[" * 100_000, "1" * 5000, "\x00", "{'a': 1}"]
)
def test_a_file_that_is_not_whole_json_is_named(tmp_path: Path, text: str) -> None:
    name, some = next(iter(files.tasks().items()))
    path = files.kaggle(tmp_path, name, some)
    path.write_text(text)
    with raising(BadTask, path):
        read_subsets(tmp_path, [])


def test_a_task_that_comes_twice_is_named(tmp_path: Path) -> None:
    name, some = next(iter(files.tasks().items()))
    path = files.kaggle(tmp_path, name, some)
    body = json.dumps(files.plain(some[0]))
    path.write_text(f'{{"x": {body}, "y": {body}, "x": {body}}}')
    with raising(BadTask, path, "'x'"):
        read_subsets(tmp_path, [])


def test_a_task_in_two_subsets_is_refused(tmp_path: Path) -> None:
    (name, some), (other, more) = files.tasks().items()
    files.kaggle(tmp_path, name, some)
    files.kaggle(tmp_path, other, [*more, some[3]])
    with raising(TaskError, name, other, some[3].name):
        read_subsets(tmp_path, [name, other])


def missing(answers: dict[str, Any]) -> None:
    answers.pop(sorted(answers)[0])


def surplus(answers: dict[str, Any]) -> None:
    answers["foreign"] = [[[1]]]


def too_few(answers: dict[str, Any]) -> None:
    answers[sorted(answers)[0]].pop()


def too_many(answers: dict[str, Any]) -> None:
    answers[sorted(answers)[0]].append([[1]])


def malformed(answers: dict[str, Any]) -> None:
    answers[sorted(answers)[0]][1] = [[12]]


@pytest.mark.parametrize("change", [missing, surplus, too_few, too_many, malformed])
def test_solutions_of_other_challenges_are_refused(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    name, some = next(iter(files.tasks().items()))
    path = files.kaggle(tmp_path, name, some).with_name(f"arc-agi_{name}_solutions.json")
    answers = json.loads(path.read_text())
    first = "foreign" if change is surplus else sorted(answers)[0]
    change(answers)
    path.write_text(json.dumps(answers))
    with raising(BadTask, path, first) as caught:
        read_subsets(tmp_path, [name])
    assert caught.value.task == first


def test_unknown_sources_and_subsets_are_named(tmp_path: Path) -> None:
    name, some = next(iter(files.tasks().items()))
    files.kaggle(tmp_path / "k", name, some)
    files.kaggle(tmp_path / "two", name, some)
    files.kaggle(tmp_path / "two", name, some, prefix="other")
    with raising(TaskError, "smal-training", name):
        read_subsets(tmp_path / "k", ["smal-training"])
    with raising(TaskError, name):
        read_subsets(tmp_path / "k", [name, name])
    with raising(TaskError, f"arc-agi_{name}", f"other_{name}"):
        read_subsets(tmp_path / "two", [name])
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "nothing", tmp_path / "k" / "arc", tmp_path / ("x" * 300)):
        with raising(DataError, path):
            read_subsets(path, [])
