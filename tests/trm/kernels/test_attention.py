"""Rotary attention and its gradient equal float64 autograd, at lengths that do not fill a tile, and beyond one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor

from tests.trm.kernels.support import CLOSE, error, random, rms
from trm.kernels import attention, plain
from trm.kernels.layout import Total
from trm.layers import rotary_tables

BOTH = pytest.mark.parametrize("part", [attention, plain.PlainAttention], ids=["kernel", "plain"])

HEADS, HEAD = 2, 32


def truth(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v with rotated q and k, by the formula."""
    q, k, v = rearrange(qkv, "b l (three h d) -> three b h l d", three=3, h=HEADS)

    def turn(x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return x * cos.double() + torch.cat((-b, a), dim=-1) * sin.double()

    weights = (turn(q) @ turn(k).transpose(-1, -2) / HEAD**0.5).softmax(-1)
    return rearrange(weights @ v, "b h l d -> b l (h d)")


@BOTH
@pytest.mark.parametrize("length", [21, 97, 150])
def test_attention_and_its_gradient(part: Any, length: int) -> None:
    x, w = random(2, length, HEADS * HEAD), random(3 * HEADS * HEAD, HEADS * HEAD, seed=2, scale=HEAD**-0.5)
    dout = random(2, length, HEADS * HEAD, seed=1)
    cos, sin = rotary_tables(length, HEAD, 10000.0)
    qkv = part.project(x, w, cos, sin, HEADS)
    x = (x.double() @ w.double().T).requires_grad_()
    true = truth(x, cos, sin)
    (gradient,) = torch.autograd.grad(true, x, dout.double())
    mixed, kept = part.forward(qkv, cos, sin, HEADS)
    assert error(mixed, true.detach()) < CLOSE
    assert error(part.backward(qkv, cos, sin, mixed, kept, dout, HEADS), gradient) < CLOSE


@BOTH
@pytest.mark.parametrize(("in_place", "rstd"), [(True, None), (False, None), (True, random(21, seed=3))])
def test_the_output_is_added_to_its_rows(part: Any, in_place: bool, rstd: Tensor | None) -> None:
    x, mixed = random(21, 64), random(21, 64, seed=1)
    w = random(64, 64, seed=2, scale=0.125)
    kept = x.double() if rstd is None else x.double() * rstd.double()[:, None]
    packed, true = torch.empty_like(w), kept + mixed.double() @ w.double().T
    part.pack_out(w, packed)
    out = x if in_place else torch.empty_like(x)
    squares = part.add(x, mixed, packed, out, rstd)
    assert error(out, true) < CLOSE
    assert error(squares.sum(-1), true.square().sum(-1)) < CLOSE


@BOTH
def test_what_goes_on_without_its_norm(part: Any) -> None:
    """Its projection is that of the norm, and what is added to its rows is added to the norm."""
    eps, (cos, sin) = 0.1, rotary_tables(21, HEAD, 10000.0)
    r, mixed, squares = random(2, 21, 64) * random(2, 21, 1, seed=1), random(42, 64, seed=2), random(42, 1).square()
    w, out = random(192, 64, seed=3, scale=0.125), random(64, 64, seed=4, scale=0.125)
    size = (squares.double() / 64 + eps).sqrt()
    y = rms(r.double().flatten(0, 1) / size, eps)
    expected = part.project(y.float().view_as(r), w, cos, sin, HEADS)
    total = Total(r, squares)
    qkv, rstd = part.project_total(total, w, cos, sin, HEADS, eps)
    assert error(qkv, expected) < CLOSE
    rows = total.r.flatten(0, 1)
    part.add(rows, mixed, out, rows, rstd)
    assert error(rows, y + mixed.double() @ out.double().T) < CLOSE
