"""The token mixer and its gradients equal float64 autograd, for the kernel and for its plain twin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trm.kernels.support import CLOSE, error, random, rms, silu_pair
from trm.kernels import plain, token_mixer
from trm.kernels.layout import CHUNK, PAD, pair_rows, unpair_rows

EPS, INNER, WIDTH = 1e-5, 128, 64


@dataclass
class Case:
    x: Tensor
    gate_up: Tensor
    down: Tensor
    grad: Tensor
    wgu: Tensor
    wd: Tensor


def case(length: int) -> Case:
    gate_up = random(2 * INNER, length, seed=1, scale=length**-0.5)
    down = random(length, INNER, seed=2, scale=INNER**-0.5)
    wgu, wd = torch.zeros(2 * INNER, PAD), torch.zeros(INNER, PAD)
    pair_rows(gate_up, wgu, CHUNK)
    wd[:, :length] = down.T
    return Case(random(3, length, WIDTH), gate_up, down, random(3, length, WIDTH, seed=3), wgu, wd)


def truth(c: Case) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y and the gradients of x, gate_up and down, in float64."""
    x, gate_up, down = (t.double().requires_grad_() for t in (c.x, c.gate_up, c.down))
    xt = x.transpose(1, 2)
    y = rms(xt + silu_pair(xt @ gate_up.T) @ down.T, EPS).transpose(1, 2)
    return y.detach(), *torch.autograd.grad(y, (x, gate_up, down), c.grad.double())


@pytest.mark.parametrize("part", [token_mixer, plain.PlainMixer], ids=["kernel", "plain"])
@pytest.mark.parametrize("length", [21, 97])
def test_mixer_and_its_gradients(part: Any, length: int) -> None:
    c = case(length)
    y_true, dx_true, dgate_up_true, ddown_true = truth(c)
    y, rstd = part.forward(c.x, c.wgu, c.wd, EPS)
    assert error(y, y_true) < CLOSE
    dx = torch.full_like(c.x, float("nan"))
    dr = part.input_grad(c.x, y, rstd, c.grad, c.wgu, c.wd, dx)
    assert error(dx, dx_true) < CLOSE
    dwgu = torch.full((2, 2 * INNER, PAD), float("nan"))
    dwd = torch.full((2, INNER, PAD), float("nan"))
    part.weight_grad(c.x, dr, c.wgu, c.wd, dwgu, dwd, False)
    part.weight_grad(c.x, dr, c.wgu, c.wd, dwgu, dwd, True)
    dgate_up = torch.empty_like(c.gate_up)
    unpair_rows(dwgu.sum(0), dgate_up, CHUNK)
    assert error(dgate_up / 2, dgate_up_true) < CLOSE
    assert error(dwd.sum(0)[:, :length].T / 2, ddown_true) < CLOSE


def test_sums_do_not_depend_on_the_number_of_parts_beyond_rounding() -> None:
    c = case(21)
    y, rstd = token_mixer.forward(c.x, c.wgu, c.wd, EPS)
    dr = token_mixer.input_grad(c.x, y, rstd, c.grad, c.wgu, c.wd, torch.empty_like(c.x))
    totals = []
    for parts in (1, 3):
        dwgu, dwd = torch.empty(parts, 2 * INNER, PAD), torch.empty(parts, INNER, PAD)
        token_mixer.weight_grad(c.x, dr, c.wgu, c.wd, dwgu, dwd, False)
        totals.append(dwgu.sum(0)[:, :21])
    assert error(totals[0], totals[1]) < CLOSE
