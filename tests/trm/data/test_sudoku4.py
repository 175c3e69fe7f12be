"""4x4 puzzles: all grids, uniqueness and minimality by counting matches, and splits that share no grid."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations, product
from pathlib import Path

import pytest
import torch

from relay.torch.faults import DataError
from trm.data import sudoku4
from trm.data.sudoku4 import Puzzles

ROOT = Path(__file__).parents[3]
TRAIN_PUZZLES = 3000


@pytest.fixture(scope="module")
def splits() -> tuple[Puzzles, Puzzles, Puzzles]:
    return sudoku4.build(TRAIN_PUZZLES)


def digits_ok(grid: tuple[int, ...]) -> bool:
    """The rules once more, written out."""
    rows = [grid[i : i + 4] for i in (0, 4, 8, 12)]
    boxes = [(grid[i], grid[i + 1], grid[i + 4], grid[i + 5]) for i in (0, 2, 8, 10)]
    return all(len(set(unit)) == 4 for unit in [*rows, *zip(*rows, strict=True), *boxes])


def test_all_288_grids() -> None:
    grids = [tuple(grid) for grid in sudoku4.grids().tolist()]
    assert grids == sorted(set(grids))
    lines = list(permutations((1, 2, 3, 4)))
    first = [line for line in lines if line[0] == 1 and line[1] == 2]
    by_force = sum(digits_ok((*a, *b, *c, *d)) for a, b, c, d in product(first, lines, lines, lines))
    assert by_force * 12 == len(grids) == 288
    assert all(digits_ok(grid) for grid in grids)


def matches(inputs: torch.Tensor) -> torch.Tensor:
    """int64 (N,): how many of the 288 grids agree with the givens."""
    puzzles = inputs.to(torch.int16) - 1
    given = puzzles > 0
    agree = torch.ones(len(puzzles), 288, dtype=torch.bool)
    for cell, column in enumerate(sudoku4.grids().to(torch.int16).unbind(dim=1)):
        agree &= ~given[:, cell, None] | (puzzles[:, cell, None] == column)
    return agree.sum(dim=1)


@pytest.mark.parametrize("part", [0, 1, 2], ids=["train", "valid", "test"])
def test_every_puzzle_is_unique_and_minimal(splits: tuple[Puzzles, ...], part: int) -> None:
    inputs, labels = splits[part]
    assert (matches(inputs) == 1).all()
    assert ((inputs == 1) | (inputs == labels)).all()
    for cell in range(sudoku4.CELLS):
        given = inputs[inputs[:, cell] > 1].clone()
        given[:, cell] = 1
        assert (matches(given) > 1).all()


def test_sizes_tokens_and_givens(splits: tuple[Puzzles, ...]) -> None:
    assert [len(split.inputs) for split in splits] == [TRAIN_PUZZLES, 500, 1000]
    for inputs, labels in splits:
        assert inputs.dtype == labels.dtype == torch.uint8
        assert len(torch.unique(inputs, dim=0)) == len(inputs)
        assert inputs.min() == 1 and labels.min() == 2 and labels.max() == inputs.max() == 5
        assert 4.3 < (inputs > 1).sum(dim=1).double().mean() < 4.6


def test_splits_share_no_solution_grid(splits: tuple[Puzzles, ...]) -> None:
    grids = [{tuple(row) for row in split.labels.tolist()} for split in splits]
    assert [len(part) for part in grids] == [200, 30, 58]
    assert len(set.union(*grids)) == 288


def test_a_function_of_the_seed(splits: tuple[Puzzles, ...]) -> None:
    """The test split does not depend on how much is trained on, but on the seed."""
    again, other = sudoku4.build(500), sudoku4.build(500, seed=1)
    for part in (1, 2):
        assert torch.equal(again[part].inputs, splits[part].inputs)
        assert not torch.equal(other[part].inputs, splits[part].inputs)


def test_there_are_85632_minimal_puzzles() -> None:
    """The known number: a minimal mask is clear, and unclear without any one of its givens."""
    unclear = sudoku4.ambiguous(sudoku4.grids())
    minimal = ~unclear
    for bit in range(sudoku4.CELLS):
        with_bit = minimal.view(288, -1, 2, 1 << bit)[:, :, 1]
        with_bit &= unclear.view(288, -1, 2, 1 << bit)[:, :, 0]
    assert int(minimal.sum()) == 85_632


def test_more_puzzles_than_there_are_is_refused() -> None:
    """A grid has 297 on average."""
    grids = sudoku4.grids()
    with pytest.raises(DataError, match="train_rows=400"):
        sudoku4._draw(grids, sudoku4.ambiguous(grids), torch.tensor([0]), 400, seed=0, step=1)


@pytest.mark.slow
def test_the_default_path_imports_no_numba(tmp_path: Path) -> None:
    """Neither generated 4x4 puzzles nor a CSV file for training load the compiler."""
    fixture = ROOT / "tests" / "data" / "sudoku" / "good.csv"
    code = f"""
import sys
from pathlib import Path
from trm import presets, tasks
from trm.config import Data
small, big = presets.preset("sudoku4"), presets.preset("sudoku")
_ = tasks.load_data(small, Path({str(tmp_path)!r})).test
tasks.load_data(big.model_copy(update={{"data": Data(train={str(fixture)!r})}}), Path({str(tmp_path)!r}))
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert not list(tmp_path.iterdir())
