"""Hard mazes with the official labels, made from a seed and kept in a file; knows no training. Making needs numba."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from relay.torch import rng
from relay.torch.rng import Stream
from trm.data import maze
from trm.data.dataset import DataError
from trm.data.files import Tell, silent

VERSION = 1
"""Raise it whenever the same arguments give other mazes."""
SIDE, SHORTEST = 30, 110
"""Of Maze-30x30-Hard: its paths have 110 cells and more, S and G included."""
WALLS = 0.36
"""Share of walls: near it the most mazes have so long a path. The official ones have 28 % to 45 %, on average 37 %."""
_BLOCKS, _TRIES = 2_000, 50
"""A maze is looked for in so many blocks of so many random ones; one in forty is hard enough."""
_EVERY = 100


def load(folder: Path, seed: int, count: int, tell: Tell = silent) -> tuple[Tensor, Tensor]:
    """(inputs, labels), uint8 (count, 900) tokens: the mazes of this seed, made the first time and then read.

    Raises DataError if they have to be made and numba is missing, or if the file was damaged.
    """
    path = folder / "generated" / f"maze{SIDE}-v{VERSION}-seed{seed}-{count}.csv"
    if not path.exists():
        maze.write_csv(path, f"generated-v{VERSION}", generate(seed, count, tell))
    return maze.read_csv(path)


def generate(
    seed: int, count: int, tell: Tell = silent, side: int = SIDE, shortest: int = SHORTEST
) -> tuple[Tensor, Tensor]:
    """`count` different mazes whose paths have `shortest` cells or more, with the labels of the official tie-break."""
    made: dict[bytes, tuple[Tensor, Tensor]] = {}
    index = 0
    while len(made) < count:
        if len(made) % _EVERY == 0:
            tell(f"Generating mazes: {len(made):,} of {count:,}")
        inputs = _maze(seed, index, side, shortest)
        made[inputs.numpy().tobytes()] = (inputs, label(inputs))
        index += 1
    questions, answers = (torch.stack(part) for part in zip(*made.values(), strict=True))
    good = maze.whole(questions) & maze.sound(questions, answers) & (maze.lengths(answers) >= shortest)
    if not bool(good.all()):
        raise DataError("A generated maze has no right label: the generator is at fault, please report it.")
    return questions, answers


def label(inputs: Tensor) -> Tensor:
    """uint8 (side^2,): the maze with the official shortest path drawn in. Raises DataError if there is none."""
    paths = _paths()
    start, goal = ((inputs == token).nonzero()[0].item() for token in (maze.START, maze.GOAL))
    steps, parents = paths.search((inputs != maze.WALL).numpy(), start)
    if steps[goal] < 0:
        raise DataError("A maze has no way from S to G.")
    marked = inputs.clone()
    marked[paths.path(parents, goal)[1:-1]] = maze.PATH
    return marked


def official(inputs: Tensor, labels: Tensor) -> int:
    """How many labels are those of the official tie-break."""
    return sum(torch.equal(label(question), answer) for question, answer in zip(inputs, labels, strict=True))


def _maze(seed: int, index: int, side: int, shortest: int) -> Tensor:
    """uint8 (side^2,): random walls, S at an end of the maze, G at random among the cells far enough from it."""
    paths, cells = _paths(), side * side
    for block in range(_BLOCKS):
        drawn = rng.uniform(seed, index * _BLOCKS + block, Stream.BUILD, (_TRIES, cells + 2))
        free = drawn[:, :cells] >= WALLS
        row, start = paths.first_hard(free.numpy(), drawn[:, cells].numpy(), shortest)
        if row >= 0:
            steps = torch.from_numpy(paths.search(free[row].numpy(), start)[0])
            far = (steps >= shortest - 1).nonzero().flatten()
            found = torch.where(free[row], maze.FREE, maze.WALL).to(torch.uint8)
            found[start], found[far[int(drawn[row, cells + 1] * len(far))]] = maze.START, maze.GOAL
            return found
    raise DataError(f"No {side}x{side} maze with a path of {shortest} cells was found in {_BLOCKS * _TRIES:,} tries.")


def _paths() -> ModuleType:
    try:
        from trm.data import paths
    except ModuleNotFoundError as error:
        raise DataError(
            f"Making mazes and their official labels needs {error.name}, which is not installed. Run `pip install "
            "numba`, or set data.train and data.test to CSV files or folders."
        ) from None
    return paths
