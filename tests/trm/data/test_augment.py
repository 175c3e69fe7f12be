"""Symmetries keep puzzles valid, treat puzzle and solution alike, and reach the whole group evenly."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.torch import rng
from trm.data import augment, sudoku4
from trm.data.sudoku import agrees, solved


def pattern(box: int) -> torch.Tensor:
    """uint8 (cells,): the digits of a solved grid of any box size."""
    side = box * box
    rows, columns = torch.arange(side)[:, None], torch.arange(side)[None, :]
    return ((rows % box * box + rows // box + columns) % side + 1).flatten().to(torch.uint8)


@settings(max_examples=40, deadline=None)
@given(box=st.sampled_from([2, 3]), seed=st.integers(0, 2**31 - 1), step=st.integers(0, 10**6), hide=st.integers(0, 99))
def test_a_transformed_solution_solves_the_transformed_puzzle(box: int, seed: int, step: int, hide: int) -> None:
    answers = pattern(box).expand(8, -1)
    shown = rng.integers(hide, 0, 0, answers.shape, 0, 2)
    inputs, labels = augment.sudoku((answers * shown + 1).to(torch.uint8), answers + 1, seed, step)
    assert solved(labels - 1).all()
    assert agrees(inputs - 1, labels - 1).all()
    assert torch.equal((inputs > 1).sum(dim=1), shown.sum(dim=1))


@pytest.mark.parametrize("box", [2, 3])
def test_distinct_cells_stay_in_their_bands(box: int) -> None:
    """Each row of a moved grid is a row or a column of the old one, whole, and bands stay together."""
    side = box * box
    for source in augment._cells(0, 0, 20, box, "cpu").view(-1, side, side):
        rows, columns = source // side, source % side
        if (rows[0] != rows[0, 0]).any():
            rows, columns = columns, rows
        assert (rows == rows[:, :1]).all() and (columns == columns[:1]).all()
        for lines in (rows[:, 0], columns[0]):
            assert sorted(lines.tolist()) == list(range(side))
            bands = (lines // box).view(box, box)
            assert (bands == bands[:, :1]).all()


def test_the_whole_group_of_cell_moves_is_reached_evenly() -> None:
    """4x4: 2 * (2^3)^2 = 128 moves of cells, and 4! relabellings, each equally likely."""
    count = 51_200
    moves = augment._cells(1, 2, count, 2, "cpu")
    labels = augment._tokens(1, 2, count, 4, "cpu")
    for draws, size in ((moves, 128), (labels, 24)):
        _, counts = torch.unique(draws, dim=0, return_counts=True)
        assert len(counts) == size
        mean = count / size
        statistic = float(((counts - mean) ** 2 / mean).sum())
        assert abs(statistic - (size - 1)) < 4 * math.sqrt(2 * (size - 1))


def test_moves_and_relabellings_are_independent() -> None:
    count = 20_000
    transposed = rng.integers(1, 2, rng.Stream.TRANSPOSE, (count,), 0, 2)
    first_digit = augment._tokens(1, 2, count, 4, "cpu")[:, 2]
    counts = torch.bincount(transposed * 4 + first_digit - 2, minlength=8).double()
    assert float(((counts - count / 8) ** 2 / (count / 8)).sum()) < 7 + 4 * math.sqrt(14)


def test_padding_and_blanks_stay() -> None:
    tokens = augment._tokens(0, 0, 50, 9, "cpu")
    assert (tokens[:, 0] == 0).all() and (tokens[:, 1] == 1).all()
    assert torch.equal(tokens[:, 2:].sort(dim=1).values, torch.arange(2, 11).expand(50, 9))


def test_a_slot_draws_the_same_in_any_batch_size_and_with_a_tensor_step() -> None:
    grids = pattern(3).expand(12, -1) + 1
    few, _ = augment.sudoku(grids[:5], grids[:5], 3, 9)
    many, _ = augment.sudoku(grids, grids, 3, torch.tensor(9))
    assert torch.equal(few, many[:5])
    assert len(torch.unique(many, dim=0)) == 12


def test_4x4_grids_form_two_orbits() -> None:
    """Why sudoku4 does not augment: two draws of the group cover every grid, test grids included."""
    grids = sudoku4.grids()
    reached = set()
    for first in (grids[0], grids[-1]):
        batch = first.expand(5000, -1) + 1
        moved, _ = augment.sudoku(batch, batch, 0, 0)
        reached.add(len(torch.unique(moved, dim=0)))
    assert max(reached) > sudoku4.TEST_GRIDS
    assert reached <= {96, 192}
