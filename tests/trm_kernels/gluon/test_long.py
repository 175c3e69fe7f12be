"""Long attention's kernels for Hopper, their own source on threads, equal float64 at lengths that fill no tile."""

from __future__ import annotations

import pytest
import torch

from tests.trm_kernels.gluon.attention import ROUNDED, Case, case
from tests.trm_kernels.gluon.loading import kernels, seed
from tests.trm_kernels.gluon.machine import Stuck
from tests.trm_kernels.support import CLOSE, error


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes up again what it used before."""
    for name in ("long_forward", "long_queries", "long_keys"):
        monkeypatch.setattr(kernels()[name], "programs", lambda _device: 2)


def check_forward(given: Case) -> tuple[torch.Tensor, torch.Tensor]:
    mixed, sums = kernels()["long_forward"].forward(given.qkv, given.heads)
    length = given.qkv.shape[1]
    assert error(mixed, given.mixed) < ROUNDED
    assert error(sums[:, :length], given.logs) < CLOSE
    assert torch.isinf(sums[:, length:]).all()
    return mixed, sums


@pytest.mark.parametrize("length", [129, 305, 916])
def test_forward(length: int) -> None:
    given = case(2, length, 2, seed=length)
    found = []
    for order in (0, 1):
        seed(order)
        found.append(check_forward(given))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_who_waits_for_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "mbarrier.arrive(q_empty.index(n % 2))"
    module = kernels((("long_forward", missing, "pass"),))["long_forward"]
    monkeypatch.setattr(module, "programs", lambda _device: 1)
    given = case(1, 129, 3)
    with pytest.raises(
        Stuck, match=r"3 _load waits for parity 0 of barrier 0 of 2 .phase 0: 3 arrivals.*mbarrier.wait"
    ):
        module.forward(given.qkv, given.heads)
