"""The projection for Hopper, its own source on threads, equals float64: of rows, and of the norm they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trm.kernels.gluon.attention import BOUNDS, HALVES, HEAD, check, turned
from tests.trm.kernels.gluon.loading import on_programs, seed
from tests.trm.kernels.support import CLOSE, random
from trm.layers import rotary_tables

EPS = 0.1


@dataclass(frozen=True)
class Case:
    """Rows, in which parts of their squares' sums lie, and a weight."""

    x: Tensor
    squares: Tensor
    w: Tensor
    cos: Tensor
    sin: Tensor
    rstd: Tensor
    """What the rows' norm is of the rows."""

    def projected(self, rstd: Tensor) -> Tensor:
        """By the formula, of the rows times `rstd`."""
        batch, length, width = self.x.shape
        whole = (self.x.double() * rstd.view(batch, length, 1)) @ self.w.double().T
        q, k, v = whole.view(batch, length, 3, width // HEAD, HEAD).unbind(2)
        q, k = (turned(part, self.cos.double(), self.sin.double()) for part in (q, k))
        return torch.stack((q, k, v), dim=2).view(batch, length, 3 * width)


def case(batch: int, length: int, width: int, half: torch.dtype) -> Case:
    """In bfloat16's numbers, as `half`."""
    x = (random(batch, length, width, seed=length) * random(batch, length, 1, seed=1).exp()).bfloat16()
    w = random(3 * width, width, seed=2, scale=width**-0.5).bfloat16()
    squares = random(batch * length, width // 128, seed=3).square() * width
    before = squares.double().sum(1) / width + EPS
    rstd = (x.double().flatten(0, 1).square().mean(1) + EPS * before).rsqrt()
    return Case(x.to(half), squares, w.to(half), *rotary_tables(length, HEAD, 10000.0), rstd)


def run(modules: Mapping[str, Any], given: Case, summed: bool) -> tuple[Tensor, ...]:
    """What the kernel makes of it, if that is right."""
    rotary = (given.cos, given.sin)
    if not summed:
        found = modules["qkv"].project(given.x, given.w, *rotary)
        check("projected", found, given.projected(torch.ones_like(given.rstd)), BOUNDS[given.x.dtype])
        return (found,)
    found, rstd = modules["qkv"].project_total(given.x, given.squares, given.w, *rotary, EPS)
    check("rstd", rstd, given.rstd, CLOSE)
    check("projected norm", found, given.projected(given.rstd), BOUNDS[given.x.dtype])
    return found, rstd


@HALVES
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize(
    ("programs", "batch", "length", "width"),
    [(1, 3, 97, 256), (2, 5, 81, 256), (4, 1, 5, 256), (7, 6, 97, 256), (40, 1, 305, 256), (3, 2, 65, 512)],
)
def test_right_and_the_same_in_any_order(
    monkeypatch: pytest.MonkeyPatch, programs: int, batch: int, length: int, width: int, summed: bool, half: torch.dtype
) -> None:
    """Where programs begin and end amid the tiles of a block of rows, with one tile, and with none."""
    modules, given, found = on_programs(monkeypatch, programs, half=half), case(batch, length, width, half), []
    for order in (0, 1):
        seed(order)
        found.append(run(modules, given, summed))
    for other in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], other, strict=True))
