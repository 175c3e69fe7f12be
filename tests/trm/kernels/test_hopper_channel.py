"""Hopper's channel MLP and output projection, their own source on threads, equal float64 in any order of events."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.trm.kernels.hopper_cases import Pairs, check_schedules, gate_up, hidden_grad, out, run

SHAPES = [(1, 3), (129, 40), (150, 2), (300, 1), (300, 5)]
"""Rows and multiprocessors: shares of one tile, of none, of whole blocks, of three blocks in a row, and shares that
begin with the last tile of a block."""
ROUNDED = 4e-3


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(("rows", "programs"), SHAPES)
def test_output_projection(rows: int, programs: int, scaled: bool) -> None:
    check_schedules(partial(out, rows=rows, scaled=scaled), programs, 3)


@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(("rows", "programs"), SHAPES)
def test_gate_up(rows: int, programs: int, keep: bool, normed: bool) -> None:
    check_schedules(partial(gate_up, rows=rows, keep=keep, normed=normed), programs, 2)


@pytest.mark.parametrize(("inner", "programs"), [(128, 3), (384, 7)])
def test_gate_up_of_other_widths(inner: int, programs: int) -> None:
    """Two tiles a block, one for each group; six."""
    check_schedules(partial(gate_up, rows=270, keep=True, normed=True, inner=inner), programs, 2)


def test_a_row_whose_squares_overflow_is_zero_and_no_other_is() -> None:
    """As for the kernel of other widths."""
    for made, _ in run(partial(gate_up, rows=150, keep=True, normed=True, huge=3), 3, 0).values():
        assert made.isfinite().all()
        assert (made == 0).all(dim=-1).nonzero().flatten().tolist() == [3]


@pytest.mark.parametrize(
    ("rows", "inner", "programs"), [(1, 128, 1), (70, 256, 40), (150, 256, 5), (550, 128, 1), (550, 256, 6)]
)
def test_hidden_gradient(rows: int, inner: int, programs: int) -> None:
    """As many rows as fill one program's buffers of products twice, and fewer."""
    check_schedules(partial(hidden_grad, rows=rows, inner=inner), programs, 2)


@pytest.mark.parametrize(
    "case",
    [
        partial(out, rows=150, scaled=True),
        partial(gate_up, rows=150, keep=True, normed=True),
        partial(hidden_grad, rows=150),
    ],
    ids=["out", "gate_up", "hidden_grad"],
)
def test_in_bfloat16(case: partial[Pairs]) -> None:
    check_schedules(partial(case, dtype=torch.bfloat16), 3, 2, ROUNDED)
