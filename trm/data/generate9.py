"""9x9 puzzles with one solution each, made from a seed and kept in a file. Making needs numba."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from relay.torch import rng
from relay.torch.faults import DataError
from relay.torch.files import Report, silent
from relay.torch.rng import Stream
from trm.data import sudoku
from trm.data.sudoku import read_csv, write_csv

VERSION = 1
"""Raise it whenever the same arguments give other puzzles."""
SIDE, CELLS = 9, 81
_EVERY = 100


def load(folder: Path, seed: int, count: int, report: Report = silent) -> tuple[Tensor, Tensor]:
    """(inputs, labels), uint8 (count, 81) tokens: the puzzles of this seed, made the first time and then read.

    Raises DataError if they have to be made and numba is missing, or if the file was damaged.
    """
    path = folder / "generated" / f"sudoku9-v{VERSION}-seed{seed}-{count}.csv"
    if not path.exists():
        made = generate(seed, count, report)
        write_csv(path, f"generated-v{VERSION}", (made.inputs, made.labels), made.guesses)
    return read_csv(path)


class Made(NamedTuple):
    """Puzzles as tokens, uint8 (N, 81), with their grades."""

    inputs: Tensor
    labels: Tensor
    guesses: list[int]


def generate(seed: int, count: int, report: Report = silent) -> Made:
    """`count` minimal puzzles with one solution each, different grids, graded by the guesses a solver needs."""
    solver = _solver()
    made = []
    for index in range(count):
        if index % _EVERY == 0:
            report(f"Generating 9x9 puzzles: {index:,} of {count:,}")
        made.append(_puzzle(solver, seed, index))
    puzzles, answers, guesses = zip(*made, strict=True)
    questions, solutions = torch.stack(puzzles), torch.stack(answers)
    _check(questions, solutions)
    return Made(questions + 1, solutions + 1, list(guesses))


def _solver() -> ModuleType:
    try:
        from trm.data import solver
    except ModuleNotFoundError as error:
        raise DataError(
            f"Generating 9x9 puzzles needs {error.name}, which is not installed. Run `pip install numba`, or set "
            "data.train and data.test to CSV files or to 'hub'."
        ) from None
    return solver


def _puzzle(solver: ModuleType, seed: int, index: int) -> tuple[Tensor, Tensor, int]:
    """(puzzle digits, answer digits, guesses), both uint8 (81,): a random grid, blanked while it stays unique."""
    digits = rng.permutations(seed, index, Stream.BUILD, CELLS, SIDE) + 1
    removal = rng.permutations(seed, index, Stream.BUILD, 1, CELLS, start=CELLS * SIDE)[0]
    blank = torch.zeros(CELLS, dtype=torch.int64)
    answer = solver.solve(blank.numpy(), digits.numpy(), limit=1).first
    puzzle = solver.minimal(answer, removal.numpy())
    proof = solver.solve(puzzle)
    if proof.solutions != 1 or (proof.first != answer).any():
        raise DataError(f"Puzzle {index} of seed {seed} is not unique. This is a bug: please report it.")
    return torch.from_numpy(puzzle).to(torch.uint8), torch.from_numpy(answer).to(torch.uint8), proof.guesses


def _check(questions: Tensor, answers: Tensor) -> None:
    """Checks the rules with other code than the solver's."""
    good = sudoku.solved(answers) & sudoku.agrees(questions, answers)
    if not bool(good.all()) or len(torch.unique(answers, dim=0)) != len(answers):
        raise DataError("A generated puzzle breaks the rules. This is a bug: please report it.")
