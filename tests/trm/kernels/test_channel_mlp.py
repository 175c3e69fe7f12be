"""The channel SwiGLU's fused halves equal float64, at row counts that fill no tile."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.trm.kernels.support import CLOSE, error, random, silu_pair
from trm.kernels import channel_mlp, plain
from trm.kernels.layout import PAIR, join_columns, pair_rows, split_columns, unpair_rows

ROWS, WIDTH, INNER = 150, 64, 256
BOTH = pytest.mark.parametrize("part", [channel_mlp, plain.PlainChannel], ids=["kernel", "plain"])


@BOTH
@pytest.mark.parametrize("keep", [True, False])
def test_gate_up(part: Any, keep: bool) -> None:
    x, weight = random(ROWS, WIDTH), random(2 * INNER, WIDTH, seed=1, scale=WIDTH**-0.5)
    packed = torch.empty_like(weight)
    pair_rows(weight, packed, PAIR)
    hidden, products = part.gate_up(x, packed, keep)
    true = x.double() @ weight.double().T
    assert error(hidden, silu_pair(true)) < CLOSE
    if keep:
        assert error(torch.cat(split_columns(products, PAIR), dim=-1), true) < CLOSE


@BOTH
def test_gate_up_of_rows_whose_norm_is_meant(part: Any) -> None:
    """Products are of the norm; hidden values are as much larger as the rows are."""
    r, weight = random(ROWS, WIDTH) * random(ROWS, 1, seed=2), random(2 * INNER, WIDTH, seed=1, scale=WIDTH**-0.5)
    packed, eps = torch.empty_like(weight), 0.1
    pair_rows(weight, packed, PAIR)
    squares = r.square().view(ROWS, 4, -1).sum(-1)
    hidden, products = part.gate_up(r, packed, True, squares, eps)
    size = (r.double().square().mean(-1, keepdim=True) + eps).sqrt()
    true = r.double() / size @ weight.double().T
    assert error(hidden, silu_pair(true) * size) < CLOSE
    assert error(torch.cat(split_columns(products, PAIR), dim=-1), true) < CLOSE
    assert error(part.gate_up(r, packed, False, squares, eps)[0], silu_pair(true) * size) < CLOSE


@BOTH
def test_a_row_whose_squares_overflow_is_zero_and_no_other_is(part: Any) -> None:
    """As where the norm is written: 1 / size is 0. Not 0 times infinity."""
    r, weight = random(ROWS, WIDTH), random(2 * INNER, WIDTH, seed=1, scale=WIDTH**-0.5)
    r[3] *= 1e30
    for made in part.gate_up(r, weight, True, r.square().sum(-1, keepdim=True), 0.1):
        assert made.isfinite().all()
        assert (made == 0).all(dim=-1).nonzero().flatten().tolist() == [3]


@BOTH
def test_hidden_grad(part: Any) -> None:
    dr, down = random(ROWS, WIDTH), random(WIDTH, INNER, seed=1, scale=INNER**-0.5)
    both = random(ROWS, 2 * INNER, seed=2)
    got = part.hidden_grad(dr, down, join_columns(*both.chunk(2, dim=-1), PAIR))
    x = both.double().requires_grad_()
    (true,) = torch.autograd.grad(silu_pair(x), x, dr.double() @ down.double())
    assert error(torch.cat(split_columns(got, PAIR), dim=-1), true) < CLOSE


def test_pairing_rows_is_undone() -> None:
    weight = random(2 * INNER, WIDTH)
    packed, back = torch.zeros(2 * INNER, WIDTH + 3), torch.empty_like(weight)
    pair_rows(weight, packed, PAIR)
    assert torch.equal(packed[:PAIR, :WIDTH], weight[:PAIR])
    assert torch.equal(packed[PAIR : 2 * PAIR, :WIDTH], weight[INNER : INNER + PAIR])
    unpair_rows(packed, back, PAIR)
    assert torch.equal(back, weight)
