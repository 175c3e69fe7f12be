"""Rotary attention and its gradient equal float64 autograd, at lengths that do not fill a tile, and beyond one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor

from tests.trm_kernels.support import CLOSE, error, random
from trm.kernels import attention, plain
from trm.layers import rotary_tables

HEADS, HEAD = 2, 32


def truth(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v with rotated q and k, by the formula."""
    q, k, v = rearrange(qkv, "b l (three h d) -> three b h l d", three=3, h=HEADS)

    def turn(x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=-1)
        return x * cos.double() + torch.cat((-b, a), dim=-1) * sin.double()

    weights = (turn(q) @ turn(k).transpose(-1, -2) / HEAD**0.5).softmax(-1)
    return rearrange(weights @ v, "b h l d -> b l (h d)")


@pytest.mark.parametrize("part", [attention, plain.PlainAttention], ids=["kernel", "plain"])
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
