"""Short attention's kernels for Hopper, their own source on threads, equal float64 at lengths up to their tile's."""

from __future__ import annotations

import pytest
import torch

from tests.trm.kernels.gluon.attention import HALVES, case, run_short
from tests.trm.kernels.gluon.loading import kernels, seed


@HALVES
@pytest.mark.parametrize("length", [1, 5, 64, 65, 81, 97, 128])
def test_right_and_the_same_in_any_order(length: int, half: torch.dtype) -> None:
    given, found = case(2, length, 3, half), []
    for order in (0, 1):
        seed(order)
        found.append(run_short(kernels((), half), given))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
