"""The compiled step on a CPU: the plain step's bits where nothing is fused, and no compiler in other sessions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.trm.conftest import tiny_batch
from tests.trm.small import small
from trm import compiled
from trm.choosing import VARIABLE
from trm.compiled import CompiledStep
from trm.train import EagerStep, TrainState
from trm.workload import TrmWorkload


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own, while it traces
def test_its_graphs_compute_the_plain_step(make: Callable[..., TrainState]) -> None:
    """Traced and differentiated as inductor gets them, without inductor's own rounding.

    `make accept PROOFS=compiled` runs inductor itself.
    """
    plain, traced = (make(0) for _ in range(2))
    step = CompiledStep(backend="aot_eager")
    for _ in range(2):
        expected = EagerStep()(plain, tiny_batch(plain.step))
        assert torch.equal(step(traced, tiny_batch(traced.step)), expected)
    found = traced.canonical()
    assert all(torch.equal(value, found[name]) for name, value in plain.canonical().items())
    assert step.timings["compile"] > 0
    assert "forward" not in vars(traced.model.inner.L_level), "an evaluation between two steps runs the plain blocks"


def test_a_session_that_is_told_to_takes_it_and_says_so_in_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "compiled")
    loaded = "torch._inductor" in sys.modules
    workload = TrmWorkload(small(), tmp_path, "cpu", steps=1)
    assert workload.path.startswith(f"{compiled.name()} cpu float32")
    assert workload.choice is not None and workload.choice.method == "compiled"
    assert loaded == ("torch._inductor" in sys.modules), "the first step loads the compiler"


def test_the_deterministic_mode_is_named_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, mode in (
        ("2.6.0", ""),
        ("2.9.1+cu128", ""),
        ("2.10.0", "-deterministic"),
        ("2.13.0", "-deterministic"),
    ):
        monkeypatch.setattr(torch, "__version__", version)
        assert CompiledStep().name == f"compiled-torch{version}{mode}"
