"""Adam-atan2, sign-SGD, EMA and the learning rate against independent formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trm.optim import adam_atan2_, ema_, lr_scale, sign_sgd_


def test_adam_atan2_follows_the_formula_in_float64() -> None:
    generator = np.random.default_rng(0)
    p, m, v = generator.normal(size=100), np.zeros(100), np.zeros(100)
    ours = [torch.tensor(x, dtype=torch.float32) for x in (p, m, v)]
    lr, b1, b2, decay = 3e-2, 0.9, 0.95, 0.1
    for t in range(1, 30):
        g = generator.normal(size=100) * 10.0 ** generator.integers(-6, 6, size=100)
        adam_atan2_(ours[0], torch.tensor(g, dtype=torch.float32), ours[1], ours[2], t, lr, (b1, b2), decay)
        g = g.astype(np.float32).astype(np.float64)
        p = p * (1 - lr * decay)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        p = p - lr / (1 - b1**t) * np.arctan2(m, np.sqrt(v) / math.sqrt(1 - b2**t))
        assert np.allclose(ours[0].numpy(), p, rtol=1e-5, atol=1e-6)
    assert np.allclose(ours[1].numpy(), m, rtol=1e-5, atol=1e-6)
    assert np.allclose(ours[2].numpy(), v, rtol=1e-5)


@given(st.floats(1e-12, 1e12), st.sampled_from([-1, 1]))
@settings(max_examples=50, deadline=None)
def test_first_step_is_the_sign_of_the_gradient_whatever_its_size(size: float, sign: int) -> None:
    p, m, v = torch.zeros(1), torch.zeros(1), torch.zeros(1)
    adam_atan2_(p, torch.tensor([size * sign]), m, v, 1, 1e-3, (0.9, 0.95), 0.0)
    assert p.item() == pytest.approx(-0.9967e-3 * sign, rel=1e-4)


def test_a_zero_gradient_only_decays() -> None:
    p, m, v = torch.ones(3), torch.zeros(3), torch.zeros(3)
    adam_atan2_(p, torch.zeros(3), m, v, 1, 0.1, (0.9, 0.95), 0.5)
    assert p.tolist() == pytest.approx([0.95] * 3)


def test_sign_sgd_golden_check() -> None:
    table = torch.zeros(4, 2)
    table[1] = 1
    grads = torch.tensor([[1.0, -1.0], [2.0, 0.0], [-5.0, 1.0]])
    sign_sgd_(table, torch.tensor([1, 1, 2]), grads, 0.01, 0.1)
    expected = torch.tensor([[0, 0], [0.989, 1.009], [0.01, -0.01], [0, 0]])
    assert torch.allclose(table, expected, rtol=0, atol=1.2e-7)  # one unit in the last place


def test_sign_sgd_is_a_function_of_the_set_of_rows() -> None:
    """Any order of the batch gives the same table when the sums are exact; untouched rows keep their bits."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(9, 5, generator=generator)
    ids = torch.randint(0, 5, (32,), generator=generator)
    grads = torch.randint(-3, 4, (32, 5), generator=generator).float()
    expected = table.clone()
    for u in ids.unique():
        expected[u] = table[u] * (1 - 0.1 * 0.2) - 0.1 * grads[ids == u].sum(0).sign()
    for _ in range(3):
        order = torch.randperm(32, generator=generator)
        ours = table.clone()
        sign_sgd_(ours, ids[order], grads[order], 0.1, 0.2)
        assert torch.allclose(ours, expected, atol=1e-7)
        assert torch.equal(ours[5:], table[5:])


def test_ema_has_no_warm_up_and_no_correction() -> None:
    shadow, p = torch.tensor([1.0]), torch.tensor([3.0])
    ema_(shadow, p, 0.75)
    assert shadow.item() == 1.5


def test_learning_rate_warms_up_from_the_first_step_and_then_is_constant(config) -> None:
    settings = config(lr_warmup_steps=10)
    assert [lr_scale(settings, s) for s in (1, 5, 9, 10, 10**6)] == [0.1, 0.5, 0.9, 1, 1]
    assert lr_scale(config(lr_warmup_steps=0), 1) == 1


def test_learning_rate_ends_at_its_floor_and_stays_there(config) -> None:
    settings = config(lr_warmup_steps=10, lr_min_ratio=0.1, total_steps=110)
    scales = [lr_scale(settings, s) for s in range(10, 300)]
    assert scales[0] == 1
    assert scales[50] == pytest.approx(0.55)
    assert scales == sorted(scales, reverse=True)
    assert scales[100] == scales[-1] == pytest.approx(0.1)
