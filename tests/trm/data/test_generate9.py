"""The compiled solver against a plain one, and generated puzzles: unique, minimal, graded, kept in a file."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from relay.torch.faults import DataError
from tests.facts import raising
from trm.data import generate9, solver, sudoku, sudoku4
from trm.data.sudoku import read_csv

pytestmark = pytest.mark.slow  # numba compiles the solver in each process
GOOD = Path(__file__).parents[2] / "data" / "sudoku" / "good.csv"


def peers(cells: int) -> list[set[int]]:
    units = sudoku.units(cells).tolist()
    return [{peer for unit in units if cell in unit for peer in unit} - {cell} for cell in range(cells)]


class Plain:
    """The same search, written with sets: counts all solutions and all guesses."""

    def __init__(self, puzzle: list[int]) -> None:
        self.grid, self.peers, self.side = list(puzzle), peers(len(puzzle)), int(len(puzzle) ** 0.5)
        self.solutions: list[list[int]] = []
        self.guesses = 0
        self.search()

    def candidates(self, cell: int) -> list[int]:
        return sorted(set(range(1, self.side + 1)) - {self.grid[peer] for peer in self.peers[cell]})

    def search(self) -> None:
        empty = [cell for cell, digit in enumerate(self.grid) if not digit]
        if not empty:
            self.solutions.append(list(self.grid))
            return
        cell = min(empty, key=lambda cell: (len(self.candidates(cell)), cell))
        candidates = self.candidates(cell)
        for digit in candidates:
            self.guesses += len(candidates) > 1
            self.grid[cell] = digit
            self.search()
        self.grid[cell] = 0


def digits(tokens: torch.Tensor) -> np.ndarray:
    return (tokens.to(torch.int64) - 1).numpy()


def test_solver_agrees_with_the_plain_one() -> None:
    inputs, labels = read_csv(GOOD)
    for puzzle, answer in zip(digits(inputs)[:5], digits(labels), strict=False):
        plain, ours = Plain(puzzle.tolist()), solver.solve(puzzle)
        assert plain.solutions == [answer.tolist()] == [ours.first.tolist()]
        assert (ours.solutions, ours.guesses) == (1, plain.guesses)


def test_grades_in_the_file_are_the_solvers() -> None:
    ratings = [int(line.split(",")[3]) for line in GOOD.read_text().splitlines()[1:]]
    assert ratings == [solver.solve(puzzle).guesses for puzzle in digits(read_csv(GOOD)[0])]


def test_solver_counts_all_4x4_grids_and_matches() -> None:
    assert solver.solve(np.zeros(16, np.int64), limit=1000).solutions == 288
    assert len(Plain([0] * 16).solutions) == 288
    for puzzle, answer in zip(*map(digits, sudoku4.build(40)[0]), strict=True):
        result = solver.solve(puzzle)
        assert result.solutions == 1 and (result.first == answer).all()


def test_solver_sees_ambiguous_and_impossible_puzzles() -> None:
    puzzle = digits(read_csv(GOOD)[0])[0]
    puzzle[np.flatnonzero(puzzle)[0]] = 0
    assert solver.solve(puzzle).solutions == 2, "the file's puzzles are minimal"
    clash = np.zeros(81, np.int64)
    clash[[0, 8]] = 5
    assert solver.solve(clash).solutions == 0
    dead = np.zeros(81, np.int64)
    dead[:8], dead[17] = range(1, 9), 9
    assert solver.solve(dead).solutions == 0
    assert dead[17] == 9 and dead[8] == 0, "the argument is not changed"


def test_relabelling_keeps_the_grade() -> None:
    inputs, _ = read_csv(GOOD)
    names = np.array([0, 4, 8, 1, 9, 2, 7, 3, 6, 5])
    for puzzle in digits(inputs)[:4]:
        assert solver.solve(names[puzzle]).guesses == solver.solve(puzzle).guesses


def test_generated_puzzles_are_unique_minimal_and_valid() -> None:
    made = generate9.generate(7, 20)
    answers, questions = made.labels - 1, made.inputs - 1
    assert sudoku.solved(answers).all() and sudoku.agrees(questions, answers).all()
    assert len(torch.unique(answers, dim=0)) == 20
    for puzzle, answer, guesses in zip(digits(made.inputs), digits(made.labels), made.guesses, strict=True):
        result = solver.solve(puzzle)
        assert (result.solutions, result.guesses) == (1, guesses)
        assert (result.first == answer).all()
        for cell in np.flatnonzero(puzzle):
            fewer = puzzle.copy()
            fewer[cell] = 0
            assert solver.solve(fewer).solutions == 2


def test_the_file_is_a_function_of_the_seed() -> None:
    """The fixture was made by another process: generate(99, 12)."""
    made = generate9.generate(99, 3)
    inputs, labels = read_csv(GOOD)
    assert torch.equal(made.inputs, inputs[:3]) and torch.equal(made.labels, labels[:3])
    assert not torch.equal(generate9.generate(98, 3).labels, made.labels)


def test_kept_in_a_file_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    first = generate9.load(tmp_path, 5, 4, lines.append)
    assert lines == ["Generating 9x9 puzzles: 0 of 4"]
    assert [path.name for path in (tmp_path / "generated").iterdir()] == ["sudoku9-v1-seed5-4.csv"]
    monkeypatch.setattr(generate9, "generate", None)
    for ours, theirs in zip(generate9.load(tmp_path, 5, 4), first, strict=True):
        assert torch.equal(ours, theirs)


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    generate9.load(tmp_path, 5, 2)
    path = tmp_path / "generated" / "sudoku9-v1-seed5-2.csv"
    path.write_text(path.read_text()[:-20])
    with raising(DataError, path, "line 3"):
        generate9.load(tmp_path, 5, 2)


def test_without_numba_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "trm.data.solver")
    monkeypatch.delattr("trm.data.solver")
    with raising(DataError, "`pip install numba`", "data.train"):
        generate9.load(tmp_path, 0, 1)
    assert not list(tmp_path.iterdir())


def test_a_wrong_answer_of_the_solver_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    made = generate9.generate(7, 2)
    with raising(DataError):
        generate9._check(made.inputs - 1, made.labels.flip(0) - 1)
    monkeypatch.setattr(solver, "minimal", lambda solution, _removal: np.zeros_like(solution))
    with raising(DataError, "seed 7"):
        generate9.generate(7, 1)
