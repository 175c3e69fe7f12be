"""The stand-in optimizer of the benchmark against the reference computes what ours does; a wrong folder is told."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from trm.optim import adam_atan2_
from trm.presets import preset


def benchmark() -> Any:
    """benchmarks/upstream.py, which no package holds."""
    path = Path(__file__).parents[2] / "benchmarks" / "upstream.py"
    spec = importlib.util.spec_from_file_location("benchmark_upstream", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stand_in_is_adam_atan2() -> None:
    config, random = preset("sudoku"), torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=random) for shape in ((3, 4), (5,))]
    theirs, ours = ([p.clone() for p in start] for _ in range(2))
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in ours]
    adam = benchmark().AdamAtan2(theirs, config)
    for t in range(1, 4):
        grads = [torch.randn(p.shape, generator=random) for p in start]
        for p, grad in zip(theirs, grads, strict=True):
            p.grad = grad.clone()
        adam.step(1e-2)
        for p, grad, (m, v) in zip(ours, grads, moments, strict=True):
            adam_atan2_(p, grad, m, v, t, 1e-2, (config.beta1, config.beta2), config.weight_decay)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-7) for a, b in zip(theirs, ours, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(theirs, start, strict=True))
    assert all(p.grad is None for p in theirs)


def test_a_folder_that_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="TinyRecursiveModels"):
        benchmark().UpstreamStep(tmp_path, None, compiled=False)
