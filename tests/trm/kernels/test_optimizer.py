"""The fused update equals Adam-atan2 and EMA in float64, at the origin too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.trm.kernels.support import CLOSE, error, random
from trm.kernels import optimizer, plain
from trm.optim import adam_atan2_, ema_

COUNT, BETAS, RATE = 3000, (0.9, 0.95), 0.999


@pytest.mark.parametrize("part", [optimizer, plain], ids=["kernel", "plain"])
@pytest.mark.parametrize("t", [1, 2000])
def test_update(part: Any, t: int) -> None:
    p, grad, m, v, ema = (random(COUNT, seed=seed) for seed in range(5))
    grad *= 10.0 ** torch.linspace(-6, 6, COUNT)
    v.abs_()
    for tensor in (grad, m, v):
        tensor[:7] = 0
    truth = [tensor.double() for tensor in (p, grad, m, v, ema)]
    rates = torch.tensor(optimizer.rates(t, 1e-2, BETAS, 0.1))
    part.adam_atan2_ema_(p, grad, m, v, ema, rates, BETAS, RATE)
    adam_atan2_(*truth[:4], t, 1e-2, BETAS, 0.1)
    ema_(truth[4], truth[0], RATE)
    for got, true in zip((p, m, v, ema), (truth[0], *truth[2:]), strict=True):
        assert error(got, true) < CLOSE


def test_without_ema_nothing_else_is_written() -> None:
    p, grad, m, v = (random(COUNT, seed=seed).abs() for seed in range(4))
    rates = torch.tensor(optimizer.rates(1, 1e-2, BETAS, 0.1))
    expected = p.clone()
    adam_atan2_(expected, grad, m.clone(), v.clone(), 1, 1e-2, BETAS, 0.1)
    optimizer.adam_atan2_ema_(p, grad, m, v, None, rates, BETAS, RATE)
    assert error(p, expected) < CLOSE
