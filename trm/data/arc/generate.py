"""Tasks of a few simple rules, the same for every run: enough to try everything on a laptop without a download."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trm.data.arc.tasks import CHALLENGES, SOLUTIONS, Pair, Task, raw_task

TRAINING, TEST = "small-training", "small-test"
"""Names of the two subsets."""
DEMONSTRATIONS, TESTS = 12, 2
SIDES = (3, 6)
"""Height and width of a grid, the second excluded."""
EACH = (3, 6)
"""Tasks of every rule, in the training and in the test subset."""
_SEED = 2026

Rule = Callable[[np.ndarray], np.ndarray]


def _swap(random: np.random.RandomState) -> Rule:
    """Exchanges two colors of the task."""
    one, other = random.choice(np.arange(1, 10), 2, replace=False)
    table = np.arange(10)
    table[[one, other]] = other, one
    return lambda grid: table[grid]


def _erase(random: np.random.RandomState) -> Rule:
    """Turns every cell black except those of two colors of the task."""
    kept = random.choice(np.arange(1, 10), 2, replace=False)
    return lambda grid: np.where(np.isin(grid, kept), grid, 0)


def _fill(random: np.random.RandomState) -> Rule:
    """Paints black cells in a color of the task."""
    color = random.randint(1, 10)
    return lambda grid: np.where(grid == 0, color, grid)


def _shape(random: np.random.RandomState) -> Rule:
    """Paints all other cells in a color of the task."""
    color = random.randint(1, 10)
    return lambda grid: np.where(grid == 0, 0, color)


def _turn(random: np.random.RandomState) -> Rule:
    """Turns one color of the task into another."""
    one, other = random.choice(np.arange(1, 10), 2, replace=False)
    return lambda grid: np.where(grid == one, other, grid)


RULES: dict[str, Callable[[np.random.RandomState], Rule]] = {
    "swap": _swap,
    "erase": _erase,
    "fill": _fill,
    "shape": _shape,
    "turn": _turn,
}


def subsets(each: tuple[int, int] = EACH) -> dict[str, list[Task]]:
    """Tasks named by rule and number, `each` of every rule in the training and in the test subset."""
    random = np.random.RandomState(_SEED)
    return {
        subset: [
            _task(f"{rule}-{subset}-{number}", RULES[rule](random), random) for number in range(count) for rule in RULES
        ]
        for subset, count in zip((TRAINING, TEST), each, strict=True)
    }


def write(folder: Path) -> tuple[Path, Path]:
    """The test subset in Kaggle's form: the files of challenges and of solutions."""
    folder.mkdir(parents=True, exist_ok=True)
    some = {task.name: raw_task(task) for task in subsets()[TEST]}
    solutions = {name: [pair.pop("output") for pair in task["test"]] for name, task in some.items()}
    files = folder / f"arc-agi_{TEST}{CHALLENGES}", folder / f"arc-agi_{TEST}{SOLUTIONS}"
    for path, content in zip(files, (some, solutions), strict=True):
        path.write_text(json.dumps(content))
    return files


def _task(name: str, rule: Rule, random: np.random.RandomState) -> Task:
    pairs = dict[tuple[tuple[int, ...], ...], Pair]()
    while len(pairs) < DEMONSTRATIONS + TESTS:
        shape = random.randint(*SIDES, size=2)
        grid = random.randint(0, 10, size=shape) * (random.randint(0, 4, size=shape) > 0)
        question, answer = (tuple(map(tuple, each.tolist())) for each in (grid, rule(grid)))
        if question != answer:
            pairs[question] = Pair(question, answer)
    every = tuple(pairs.values())
    return Task(name, every[:DEMONSTRATIONS], every[DEMONSTRATIONS:])
