"""What the tests give attention's kernels, and whether what these make of it is right: float64 by autograd."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trm.kernels.gluon.machine import Machine
from tests.trm.kernels.support import CLOSE, error, random
from trm.layers import rotary_tables

HEAD = 64
BOUNDS = {torch.bfloat16: 4e-3, torch.float64: CLOSE}
"""Relative error of results, if they and factors in between are rounded so."""
HALVES = pytest.mark.parametrize("half", BOUNDS, ids=["as on a GPU", "exact"])
"""What stands for bfloat16: itself; what is not rounded shows a single wrong element."""


def check(what: str, found: Tensor, truth: Tensor, bound: float) -> None:
    by = error(found, truth)
    assert by < bound, f"{what}: relative error {by:.1e}, more than {bound:.0e}, in the order of seed {Machine.seed}"


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
    """Of the sums of the weights, (B heads, L)."""
    grad: Tensor
    """Of qkv before it was turned."""
    bound: float
    """Of what is mixed: weights are as exact as float32 holds the largest scores."""


def case(batch: int, length: int, heads: int, half: torch.dtype, first: float = 1.0) -> Case:
    """All in bfloat16's numbers, as `half`. `first`: what the first sequence's queries are multiplied by."""
    width = HEAD * heads
    cos, sin = rotary_tables(length, HEAD, 10000.0)
    plain = random(batch, length, 3, heads, HEAD, seed=length)
    plain[0, :, 0] *= first
    dout = random(batch, length, width, seed=length + 1).bfloat16()
    leaf = plain.bfloat16().double().requires_grad_()
    q, k, v = (leaf[:, :, i].transpose(1, 2) for i in range(3))
    scores = q @ k.transpose(2, 3) / HEAD**0.5
    mixed = (scores.softmax(dim=3) @ v).transpose(1, 2).reshape(batch, length, width)
    (grad,) = torch.autograd.grad(mixed, leaf, dout.double())
    for i in (0, 1):
        grad[:, :, i] = turned(grad[:, :, i], cos.double(), -sin.double())
    logs = scores.detach().logsumexp(dim=3).reshape(-1, length)
    shape = (batch, length, 3 * width)
    qkv, bound = leaf.detach().reshape(shape).to(half), max(1.0, first / 16) * BOUNDS[half]
    return Case(heads, cos, sin, qkv, dout.to(half), mixed.detach(), logs, grad.view(shape), bound)


def mix_long(modules: Mapping[str, Any], given: Case) -> tuple[Tensor, Tensor]:
    """What the forward kernel of long attention makes of it, if that is right."""
    mixed, sums = modules["long_forward"].forward(given.qkv, given.heads)
    length = given.qkv.shape[1]
    check("mixed", mixed, given.mixed, given.bound)
    check("sums", sums[:, :length], given.logs / math.log(2), CLOSE)
    assert torch.isinf(sums[:, length:]).all()
    return mixed, sums


def run_long(modules: Mapping[str, Any], given: Case) -> tuple[Tensor, ...]:
    """The same, and the gradient."""
    mixed, sums = mix_long(modules, given)
    grad, dots = torch.full_like(given.qkv, math.nan), torch.full_like(sums, math.nan)
    modules["long_queries"].write(grad, dots, given.qkv, given.cos, given.sin, mixed, sums, given.dout, given.heads)
    modules["long_keys"].write(grad, dots, given.qkv, given.cos, given.sin, sums, given.dout, given.heads)
    check("grad", grad, given.grad, BOUNDS[given.qkv.dtype])
    return mixed, sums, grad


def run_short(modules: Mapping[str, Any], given: Case) -> tuple[Tensor, ...]:
    """What those of short attention make of it. Their sums' logarithms are negated and in units of q @ k."""
    mixed, sums = modules["short_forward"].forward(given.qkv, given.heads)
    check("mixed", mixed, given.mixed, given.bound)
    check("sums", sums[:, : given.qkv.shape[1]], given.logs * -(HEAD**0.5), CLOSE)
    grad = modules["short_backward"].backward(
        given.qkv, given.cos, given.sin, mixed, sums, given.dout, given.heads
    )  # fmt: skip
    check("grad", grad, given.grad, BOUNDS[given.qkv.dtype])
    return mixed, sums, grad
