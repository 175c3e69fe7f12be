"""Long attention's kernels for Hopper, their own source on threads, equal float64 at lengths that fill no tile."""

from __future__ import annotations

import pytest
import torch

from tests.trm.kernels.gluon.attention import HALVES, case, mix_long, run_long
from tests.trm.kernels.gluon.loading import on_programs, seed
from tests.trm.kernels.gluon.machine import Stuck


@HALVES
@pytest.mark.parametrize(("length", "batch", "heads"), [(129, 2, 3), (305, 2, 2), (916, 1, 1)])
def test_right_and_the_same_in_any_order(
    monkeypatch: pytest.MonkeyPatch, length: int, batch: int, heads: int, half: torch.dtype
) -> None:
    modules, given = on_programs(monkeypatch, 2, half=half), case(batch, length, heads, half)
    found = []
    for order in (0, 1):
        seed(order)
        found.append(run_long(modules, given))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@HALVES
def test_weights_that_outgrow_their_range(monkeypatch: pytest.MonkeyPatch, half: torch.dtype) -> None:
    """Those queries are done again, and only those."""
    seed(0)
    mix_long(on_programs(monkeypatch, 1, half=half), case(2, 305, 1, half, first=50.0))


def test_who_waits_for_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "mbarrier.arrive(q_empty.index(n % 2))"
    modules = on_programs(monkeypatch, 1, (("long_forward", missing, "pass"),))
    told = (
        r"3 _load waits for parity 0 of barrier 0 of 2 \(phase 0: 3 arrivals and 0 bytes are missing\) at long_forward"
    )
    with pytest.raises(Stuck, match=told):
        run_long(modules, case(1, 129, 3, torch.bfloat16))
