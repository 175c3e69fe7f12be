"""Residual, norm and injection in one pass, and the norm's gradient, equal float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.trm.kernels.support import CLOSE, error, random, rms
from trm.kernels import norm, plain

ROWS, WIDTH, EPS = 21, 64, 1e-5
BOTH = pytest.mark.parametrize("part", [norm, plain.PlainNorm], ids=["kernel", "plain"])


@BOTH
@pytest.mark.parametrize(("inject", "keep"), [(False, True), (True, True), (True, False)])
def test_forward(part: Any, inject: bool, keep: bool) -> None:
    x, m, injection = (random(ROWS, WIDTH, seed=seed) for seed in range(3))
    y, z, rstd = part.forward(x, m, EPS, injection if inject else None, keep)
    r = x.double() + m.double()
    true = rms(r, EPS)
    assert error(rstd, (r.square().mean(-1) + EPS).rsqrt()) < CLOSE
    assert error(z, true + injection.double() if inject else true) < CLOSE
    if keep:
        assert error(y, true) < CLOSE


@BOTH
def test_y_goes_where_it_is_wanted(part: Any) -> None:
    x, injection, out = random(ROWS, WIDTH), random(ROWS, WIDTH, seed=1), torch.empty(ROWS, WIDTH)
    for extra in (None, injection):
        expected, z, _ = part.forward(x, None, EPS, extra)
        y, same, _ = part.forward(x, None, EPS, extra, out=out.fill_(torch.nan))
        assert y is out and torch.equal(out, expected) and torch.equal(same, z)


@BOTH
def test_a_sum_that_is_made_already(part: Any) -> None:
    x = random(ROWS, WIDTH)
    assert error(part.forward(x, None, EPS)[0], rms(x.double(), EPS)) < CLOSE


@BOTH
@pytest.mark.parametrize("parts", [1, 4])
def test_a_sum_that_is_larger_than_it_is_meant(part: Any, parts: int) -> None:
    """What is `size` times as large as y + m has the norm of y + m, y = r / size; its eps counts at any size."""
    r = random(ROWS, WIDTH) * random(ROWS, 1, seed=3)
    squares = r.double().square().view(ROWS, parts, -1).sum(-1)
    size = (r.double().square().mean(-1, keepdim=True) + EPS).sqrt()
    m = 1e-2 * random(ROWS, WIDTH, seed=1) * size.float()
    y, _, rstd = part.forward(r, m, EPS, squares=squares.float())
    total = (r.double() + m.double()) / size
    assert error(y, rms(total, EPS)) < CLOSE
    assert error(rstd, (total.square().mean(-1) + EPS).rsqrt() / size[:, 0]) < CLOSE
    assert (
        error(
            part.forward(1e-2 * r, None, EPS, squares=1e-4 * squares.float())[0], rms(rms(1e-2 * r.double(), EPS), EPS)
        )
        < CLOSE
    )


@BOTH
def test_the_gradient_of_a_sum(part: Any) -> None:
    """Of y2 = rms(y + y @ w) through r2 = r + r @ w, as large as r: that of r2 is what a block's backward pass has."""
    r, w, dy = (random(ROWS, WIDTH, seed=seed) for seed in range(3))
    w = random(WIDTH, WIDTH, seed=1, scale=WIDTH**-0.5)
    whole = r.double().requires_grad_()
    y = rms(whole, EPS)
    (true,) = torch.autograd.grad(rms(y + y @ w.double(), EPS), whole, dy.double())
    squares = r.square().sum(-1, keepdim=True)
    y2, _, rstd = part.forward(r, r @ w, EPS, squares=squares)
    dr2 = part.backward(dy, y2, rstd)
    out = torch.empty_like(dy)
    assert part.backward_of_sum(dr2 + dr2 @ w.T, r, squares, EPS, out) is out
    assert error(out, true) < 3 * CLOSE


@BOTH
def test_backward(part: Any) -> None:
    x, m, dy = (random(ROWS, WIDTH, seed=seed) for seed in range(3))
    y, _, rstd = part.forward(x, m, EPS)
    r = (x.double() + m.double()).requires_grad_()
    (true,) = torch.autograd.grad(rms(r, EPS), r, dy.double())
    assert error(part.backward(dy, y, rstd), true) < CLOSE
    out = torch.empty_like(dy)
    assert part.backward(dy, y, rstd, out) is out
    assert error(out, true) < CLOSE
