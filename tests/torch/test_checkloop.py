"""A restart that changes what a loop computes is found at its first step, with the names of what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from relay.core.runs.ownloop import measures_of
from relay.torch.checkloop import Difference, Trace, first_difference, of_value, read_trace
from relay.torch.loop import LoopWorkload
from relay.torch.tracked import parts_of


def traced(path: Path, change: int = 0) -> list[tuple[int, dict[str, str]]]:
    """Four steps; in the third one thing is otherwise."""
    torch.manual_seed(0)
    net = nn.Linear(2, 2)
    workload = LoopWorkload(parts_of({"model": net}), {}, "", measures_of({}))
    trace = Trace(path, 0)
    for step in range(1, 5):
        batch = torch.full((1, 2), float(step))
        if step == 3 and change == 1:
            batch += 1
        if step == 3 and change == 2:
            torch.rand(1)
        with torch.no_grad():
            net.weight += batch.mean()
            if step == 3 and change == 3:
                net.bias += 1
        workload.step = step
        trace.step(workload, {"x": batch})
    return list(read_trace(path))


@pytest.mark.parametrize(
    ("change", "names"), [(1, ("batch", "part model")), (2, ("random stream torch",)), (3, ("part model",))]
)
def test_the_first_difference_is_named(tmp_path: Path, change: int, names: tuple[str, ...]) -> None:
    whole = traced(tmp_path / "whole")
    assert first_difference(whole, traced(tmp_path / "same")) is None
    assert first_difference(whole, traced(tmp_path / "other", change)) == Difference(3, names)


def test_batches_of_any_kind_have_a_digest() -> None:
    values = [torch.ones(2), [torch.ones(2), 1], {"a": torch.zeros(1)}, "text", object()]
    assert len({of_value(value) for value in values}) == len(values)
