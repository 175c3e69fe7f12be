"""Why `reads: raw` needs no training: averages never act on it, so the raw weights are those of a run without them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from relay.core.workload import Reading, read_as
from tests.trm.small import small
from trm.workload import TrmWorkload

STEPS = 12


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, TrmWorkload]:
    """With averages and without, after a few steps on 4x4 Sudoku."""
    found = {}
    for ema in (True, False):
        workload = TrmWorkload(small(ema=ema), tmp_path_factory.mktemp("data"), "cpu")
        workload.start()
        workload.advance(STEPS, lambda: False, None)
        found[ema] = workload
    return found


def test_a_run_without_averages_has_the_raw_weights_of_the_run_with_them(trained: dict[bool, TrmWorkload]) -> None:
    ours, theirs = (trained[ema].state.model.inner.state_dict() for ema in (True, False))
    assert ours.keys() == theirs.keys() and len(ours) > 5
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    averaged = trained[True].state.eval_weights()
    assert averaged and any(not torch.equal(averaged[name], ours[name.removeprefix("inner.")]) for name in averaged)


def test_reading_raw_weights_measures_what_that_run_measures(trained: dict[bool, TrmWorkload], tmp_path: Path) -> None:
    with read_as(trained[True], Reading(raw=True)):
        raw = trained[True].evaluate("test", 64)
    assert raw == trained[False].evaluate("test", 64)
    assert trained[True].reading == Reading()


@pytest.mark.slow
@pytest.mark.parametrize("recursions", [1, 12])
def test_fewer_and_more_recursions_than_trained(trained: dict[bool, TrmWorkload], recursions: int) -> None:
    """`answers` gets the number, and the usual evaluation is the same before and after."""
    workload = trained[True]
    assert recursions != workload.depth
    usual = workload.evaluate("test", 64)
    with read_as(workload, Reading(recursions=recursions)):
        other = workload.evaluate("test", 64)
    assert other["n"] == 64 and other != usual
    assert workload.evaluate("test", 64) == usual
