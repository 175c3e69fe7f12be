"""Mazes as tokens: the official CSV files, and the checks of labels and answers.

Cells are " " (free), # (wall), S, G, and in a label o for the path between them (reference/trm.md 9). A label is
a shortest path. Another path of the same length is an optimal answer too, although it is not the label.
"""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from relay.torch import rng
from relay.torch.faults import DataError
from relay.torch.files import Report, replacing, silent
from relay.torch.rng import Stream
from trm.data.csvrows import BAD, HEADER, Row, parse, reading, require, rows

CHARACTERS = "# SGo"
WALL, FREE, START, GOAL, PATH = range(1, 6)
VOCABULARY = 6
"""Padding and five characters."""
_CHUNK = 1_000
_ALONE = 32_000
"""Elements that torch gives to one CPU thread: two threads that wait for each other often are far slower."""


def read_csv(path: Path) -> tuple[Tensor, Tensor]:
    """(inputs, labels), both uint8 (N, side^2) tokens; the side is that of the first row.

    The file has the shape of the Sudoku files (trm/data/csvrows.py). Raises DataError, with the line, for a maze
    without exactly one S and one G, and for an answer that is not the maze with a shortest path drawn into it.
    """
    inputs, labels = [], []
    with reading(path):
        found = rows(path)
        while chunk := list(islice(found, _CHUNK)):
            questions, answers = _checked(path, chunk)
            inputs.append(questions)
            labels.append(answers)
    if not inputs:
        raise DataError(f"{path} has only a header. Add mazes below '{HEADER}'.")
    return torch.cat(inputs), torch.cat(labels)


def _checked(path: Path, chunk: list[Row]) -> tuple[Tensor, Tensor]:
    tokens = {character: token for token, character in enumerate(CHARACTERS, 1)}
    questions = parse([row.question for row in chunk], tokens)
    answers = parse([row.answer for row in chunk], tokens)
    for what, grids in (("question", questions), ("answer", answers)):
        require(path, chunk, (grids != BAD).all(1), f"the {what} has a character other than '{CHARACTERS}'")
    require(path, chunk, whole(questions), "the question needs one S, one G, and no o")
    require(path, chunk, sound(questions, answers), "the answer is not the question with a shortest path of o drawn in")
    return questions, answers


def write_csv(path: Path, source: str, tokens: tuple[Tensor, Tensor]) -> None:
    """Write the result of `read_csv` in its format, whole or not at all; the rating is the path's length.

    Raises DataError if the folder cannot be written.
    """
    with replacing(path) as file:
        file.write(f"{HEADER}\n".encode())
        for question, answer in zip(*tokens, strict=True):
            file.write(f"{source},{text(question)},{text(answer)},{int(lengths(answer[None]))}\n".encode())


def text(tokens: Tensor) -> str:
    """A maze in the files' notation."""
    return "".join(CHARACTERS[token - 1] for token in tokens.tolist())


def lengths(labels: Tensor) -> Tensor:
    """int64 (N,): cells of each path, S and G included; the official rating."""
    return (labels == PATH).sum(1) + 2


def whole(inputs: Tensor) -> Tensor:
    """bool (N,): one S, one G, and walls and free cells around them."""
    known = ((inputs >= WALL) & (inputs <= GOAL)).all(1)
    return known & ((inputs == START).sum(1) == 1) & ((inputs == GOAL).sum(1) == 1)


def sound(inputs: Tensor, labels: Tensor) -> Tensor:
    """bool (N,): the label is the maze (`whole`) with a shortest path drawn into it."""
    return drawn(inputs, labels) & (flooded(inputs != WALL, inputs) == flooded(labels != FREE, labels))


def drawn(inputs: Tensor, grids: Tensor) -> Tensor:
    """bool (N,): the grid is the maze with some free cells marked, all of them on a path to G.

    A path with as many steps as there are marks, plus one, uses them all.
    """
    kept = ((grids == inputs) | ((grids == PATH) & (inputs == FREE))).all(1)
    marked = (grids == PATH) | (grids == START) | (grids == GOAL)
    return kept & (flooded(marked, inputs) == marked.sum(1) - 1)


def optimal(inputs: Tensor, labels: Tensor, predicted: Tensor) -> Tensor:
    """bool (N,): the prediction is a shortest path, the label's or another one."""
    return ((predicted == PATH).sum(1) == (labels == PATH).sum(1)) & drawn(inputs, predicted)


def flooded(free: Tensor, inputs: Tensor) -> Tensor:
    """int64 (N,): steps from S to G through free cells, -1 if there is no way. free: bool (N, side^2)."""
    few = max(1, _ALONE // free.shape[1]) if free.device.type == "cpu" else len(free)
    return torch.cat([_flooded(free[at : at + few], inputs[at : at + few]) for at in range(0, len(free), few)])


def _flooded(free: Tensor, inputs: Tensor) -> Tensor:
    side = math.isqrt(free.shape[1])
    free = (free & (inputs != WALL)).view(-1, side, side)
    reached, goal = ((inputs == token).view(-1, side, side) for token in (START, GOAL))
    steps = torch.full((len(free),), -1, dtype=torch.int64, device=free.device)
    for step in range(1, side * side):
        grown = reached.clone()
        grown[:, 1:] |= reached[:, :-1]
        grown[:, :-1] |= reached[:, 1:]
        grown[:, :, 1:] |= reached[:, :, :-1]
        grown[:, :, :-1] |= reached[:, :, 1:]
        grown &= free
        steps[(grown & goal).flatten(1).any(1) & (steps < 0)] = step
        if bool((grown == reached).flatten(1).all(1).logical_or(steps >= 0).all()):
            break
        reached = grown | reached
    return steps


VERSION = 1
"""Raise it whenever the same arguments give other mazes."""
SIDE, SHORTEST = 30, 110
"""Minimum of Maze-30x30-Hard: its paths have 110 cells and more, S and G included."""
WALLS = 0.36
"""Share of walls: near it the most mazes have such a long path. The official ones have 28 % to 45 %, mean 37 %."""
_BLOCKS, _TRIES = 2_000, 50
"""Blocks, and random mazes in a block, to search for a maze; one in forty is hard enough."""
_EVERY = 100


def load(folder: Path, seed: int, count: int, report: Report = silent) -> tuple[Tensor, Tensor]:
    """(inputs, labels), uint8 (count, 900) tokens: the mazes of this seed, made the first time and then read.

    Raises DataError if they have to be made and numba is missing, or if the file was damaged.
    """
    path = folder / "generated" / f"maze{SIDE}-v{VERSION}-seed{seed}-{count}.csv"
    if not path.exists():
        write_csv(path, f"generated-v{VERSION}", generate(seed, count, report))
    return read_csv(path)


def generate(
    seed: int, count: int, report: Report = silent, side: int = SIDE, shortest: int = SHORTEST
) -> tuple[Tensor, Tensor]:
    """`count` different mazes whose paths have `shortest` cells or more, with the labels of the official tie-break."""
    made: dict[bytes, tuple[Tensor, Tensor]] = {}
    index = 0
    while len(made) < count:
        if len(made) % _EVERY == 0:
            report(f"Generating mazes: {len(made):,} of {count:,}")
        inputs = _maze(seed, index, side, shortest)
        made[inputs.numpy().tobytes()] = (inputs, label(inputs))
        index += 1
    questions, answers = (torch.stack(part) for part in zip(*made.values(), strict=True))
    good = whole(questions) & sound(questions, answers) & (lengths(answers) >= shortest)
    if not bool(good.all()):
        raise DataError("A generated maze has no right label. This is a bug: please report it.")
    return questions, answers


def label(inputs: Tensor) -> Tensor:
    """uint8 (side^2,): the maze with the official shortest path drawn in. Raises DataError if there is none."""
    paths = _paths()
    start, goal = ((inputs == token).nonzero()[0].item() for token in (START, GOAL))
    steps, parents = paths.search((inputs != WALL).numpy(), start)
    if steps[goal] < 0:
        raise DataError("A maze has no way from S to G.")
    marked = inputs.clone()
    marked[paths.path(parents, goal)[1:-1]] = PATH
    return marked


def official(inputs: Tensor, labels: Tensor) -> int:
    """Number of labels that follow the official tie-break."""
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
            found = torch.where(free[row], FREE, WALL).to(torch.uint8)
            found[start], found[far[int(drawn[row, cells + 1] * len(far))]] = START, GOAL
            return found
    raise DataError(f"No {side}x{side} maze with a path of {shortest} cells found in {_BLOCKS * _TRIES:,} tries.")


def _paths() -> ModuleType:
    try:
        from trm.data import paths
    except ModuleNotFoundError as error:
        raise DataError(
            f"Making mazes and their official labels needs {error.name}, which is not installed. Run `pip install "
            "numba`, or set data.train and data.test to CSV files or folders."
        ) from None
    return paths
