"""Hopper's token mixer and its gradients, their own source on threads, equal float64 in any order of events."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pytest
import torch

from tests.trm.kernels.hopper_cases import (
    Mixer,
    Pairs,
    check_schedules,
    mixer_forward,
    mixer_input_grad,
    mixer_weight_grad,
)

SHAPES = [(1, 1, 6), (1, 97, 3), (2, 112, 1), (3, 21, 5)]
"""Sequences, their length and multiprocessors: of four units a sequence none, one, two or eight for a program."""
mixer = cache(Mixer)


@pytest.mark.parametrize("part", [mixer_forward, mixer_input_grad])
@pytest.mark.parametrize(("batch", "length", "programs"), SHAPES)
def test_mixer_and_its_input_gradient(part: Callable[..., Pairs], batch: int, length: int, programs: int) -> None:
    check_schedules(partial(part, case=mixer(batch, length)), programs, 2)


@pytest.mark.parametrize(("batch", "length", "parts", "add"), [(1, 112, 1, True), (2, 97, 3, False), (3, 1, 1, False)])
def test_weight_gradient(batch: int, length: int, parts: int, add: bool) -> None:
    """One part of three has no sequence."""
    check_schedules(partial(mixer_weight_grad, case=mixer(batch, length), parts=parts, add=add), 1, 2)


@pytest.mark.parametrize(
    "part", [mixer_forward, mixer_input_grad, partial(mixer_weight_grad, parts=1, add=False)], ids=["y", "dx", "dw"]
)
def test_in_bfloat16(part: Callable[..., Pairs]) -> None:
    check_schedules(partial(part, case=mixer(1, 97, torch.bfloat16)), 3, 1, 4e-3)
