"""What attention's tests give their kernels, and its float64 truth by autograd."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.trm_kernels.support import random
from trm.layers import rotary_tables

HEAD = 64
ROUNDED = 4e-3
"""Relative error of results, and of factors in between, that are rounded to bfloat16."""


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, L, heads, 64)."""
    a, b = x.chunk(2, dim=-1)
    return x * cos[:, None] + torch.cat((-b, a), dim=-1) * sin[:, None]


@dataclass(frozen=True)
class Case:
    """Projected queries, keys and values, turned already, and a gradient of what is mixed of them."""

    heads: int
    cos: Tensor
    sin: Tensor
    qkv: Tensor
    dout: Tensor
    mixed: Tensor
    logs: Tensor
    """Of the sums of the weights, to base 2, (B heads, L)."""
    grad: Tensor
    """Of qkv before it was turned."""


def case(batch: int, length: int, heads: int, seed: int = 0, scale: float = 1.0) -> Case:
    """`scale`: of the queries."""
    width = HEAD * heads
    cos, sin = rotary_tables(length, HEAD, 10000.0)
    plain = random(batch, length, 3, heads, HEAD, seed=seed)
    plain[:, :, 0] *= scale
    dout = random(batch, length, width, seed=seed + 1).bfloat16()
    leaf = plain.bfloat16().double().requires_grad_()
    q, k, v = (leaf[:, :, i].transpose(1, 2) for i in range(3))
    scores = q @ k.transpose(2, 3) / HEAD**0.5
    mixed = (scores.softmax(dim=3) @ v).transpose(1, 2).reshape(batch, length, width)
    (grad,) = torch.autograd.grad(mixed, leaf, dout.double())
    for i in (0, 1):
        grad[:, :, i] = turned(grad[:, :, i], cos.double(), -sin.double())
    logs = scores.detach().logsumexp(dim=3).reshape(-1, length) / torch.tensor(2.0).double().log()
    shape = (batch, length, 3 * width)
    return Case(heads, cos, sin, leaf.detach().reshape(shape).bfloat16(), dout, mixed.detach(), logs, grad.view(shape))
