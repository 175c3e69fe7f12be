"""Stablemax against its definition and analytic gradient; what a step's metrics count."""

from __future__ import annotations

import math

import pytest
import torch

from trm.act import Output
from trm.losses import METRICS, loss_and_metrics, stablemax_cross_entropy


def s(x: float) -> float:
    return x + 1 if x >= 0 else 1 / (1 - x)


def test_stablemax_is_its_definition() -> None:
    logits = torch.tensor([[[2.0, -3.0, 0.0], [100.0, -100.0, 1e-8]]])
    loss = stablemax_cross_entropy(logits, torch.tensor([[1, 0]]))
    for row, label in ((0, 1), (1, 0)):
        values = [s(x) for x in logits[0, row].tolist()]
        assert loss[0, row].item() == pytest.approx(-math.log(values[label] / sum(values)), rel=1e-12)


def test_stablemax_gradient_is_the_analytic_one() -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(2, 5, 11, generator=generator, dtype=torch.float64) * 3).requires_grad_()
    labels = torch.randint(0, 11, (2, 5), generator=generator)
    torch.autograd.backward(stablemax_cross_entropy(x, labels).sum())
    values = torch.where(x >= 0, x + 1, 1 / (1 - x))
    slope = torch.where(x >= 0, torch.ones_like(x), 1 / (1 - x) ** 2)
    chosen = torch.nn.functional.one_hot(labels, 11)
    expected = slope * (1 / values.sum(-1, keepdim=True) - chosen / values)
    assert torch.allclose(x.grad, expected, rtol=1e-12)


def test_ignored_cells_have_no_loss_and_no_gradient() -> None:
    x = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = stablemax_cross_entropy(x, torch.tensor([[1, -100, 2]]))
    torch.autograd.backward(loss.sum())
    assert loss[0, 1] == 0
    assert not x.grad[0, 1].any()


def output(predicted: list[list[int]], labels: list[list[int]], q: list[float], halted: list[bool]) -> Output:
    logits = torch.nn.functional.one_hot(torch.tensor(predicted), 4).float()
    halting = torch.tensor([[value, 0.0] for value in q])
    count = len(labels)
    return Output(logits, halting, torch.tensor(labels), torch.tensor(halted), torch.arange(1, count + 1))


def test_metrics_count_sequences_that_halted_and_have_labels() -> None:
    step = output(
        predicted=[[1, 2], [1, 3], [2, 2], [0, 0]],
        labels=[[1, 2], [1, 2], [2, 2], [-100, -100]],
        q=[1.0, 1.0, -1.0, 1.0],
        halted=[True, True, False, True],
    )
    _, metrics = loss_and_metrics(step)
    found = dict(zip(METRICS, metrics.tolist(), strict=True))
    assert found["count"] == 2
    assert found["accuracy"] == 1.5
    assert found["exact_accuracy"] == 1
    assert found["q_halt_accuracy"] == 1
    assert found["steps"] == 3


def test_total_is_a_sum_of_means_and_half_the_halting_loss() -> None:
    step = output([[1, 2], [1, 1]], [[1, -100], [2, 2]], [0.3, -0.2], [False, False])
    loss, metrics = loss_and_metrics(step)
    tokens = stablemax_cross_entropy(step.logits, step.labels)
    lm = tokens[0, 0] + tokens[1].mean()
    q_halt = -math.log(1 / (1 + math.exp(-0.3))) - math.log(1 - 1 / (1 + math.exp(0.2)))
    assert metrics[5].item() == pytest.approx(lm.item(), rel=1e-12)
    assert metrics[6].item() == pytest.approx(q_halt, rel=1e-6)
    assert loss.item() == pytest.approx(lm.item() + 0.5 * q_halt, rel=1e-6)


def test_ties_go_to_the_first_token() -> None:
    step = Output(torch.zeros(1, 1, 3), torch.zeros(1, 2), torch.tensor([[0]]), torch.tensor([True]), torch.ones(1))
    assert loss_and_metrics(step)[1][2] == 1
