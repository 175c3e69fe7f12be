"""Tasks of a few simple rules, the same for every run: enough to try everything on a laptop without a download."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trm.data.arc.tasks import Pair, Task

TRAINING, TEST = "small-training", "small-test"
"""Names of the two subsets."""
DEMONSTRATIONS, TESTS = 12, 2
SIDES = (3, 6)
"""Height and width of a grid, the second excluded."""
EACH = (6, 6)
"""Tasks of every rule, in the training and in the test subset."""
_SEED = 2026

Rule = Callable[[np.ndarray], np.ndarray]


def _mirror(_random: np.random.RandomState) -> Rule:
    return np.fliplr


def _flip(_random: np.random.RandomState) -> Rule:
    return np.flipud


def _half_turn(_random: np.random.RandomState) -> Rule:
    return lambda grid: np.rot90(grid, 2)


def _frame(random: np.random.RandomState) -> Rule:
    """Paints the border in a color of the task."""
    color = random.randint(1, 10)

    def framed(grid: np.ndarray) -> np.ndarray:
        made = grid.copy()
        made[[0, -1], :] = made[:, [0, -1]] = color
        return made

    return framed


def _recolor(random: np.random.RandomState) -> Rule:
    """Moves every color on to the next one in an order of the task."""
    order = random.permutation(np.arange(1, 10))
    table = np.zeros(10, dtype=np.int64)
    table[order] = np.roll(order, 1)
    return lambda grid: table[grid]


RULES: dict[str, Callable[[np.random.RandomState], Rule]] = {
    "mirror": _mirror,
    "flip": _flip,
    "halfturn": _half_turn,
    "frame": _frame,
    "recolor": _recolor,
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


def _task(name: str, rule: Rule, random: np.random.RandomState) -> Task:
    pairs = dict[tuple[tuple[int, ...], ...], Pair]()
    while len(pairs) < DEMONSTRATIONS + TESTS:
        shape = random.randint(*SIDES, size=2)
        grid = random.randint(0, 10, size=shape)
        question, answer = (tuple(map(tuple, each.tolist())) for each in (grid, rule(grid)))
        if question != answer:
            pairs[question] = Pair(question, answer)
    every = tuple(pairs.values())
    return Task(name, every[:DEMONSTRATIONS], every[DEMONSTRATIONS:])
