"""The fused loss equals trm/losses.py and its autograd gradient, unlabelled rows and ties included."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.trm.kernels.support import CLOSE, error, random
from trm.act import Output
from trm.data.dataset import IGNORE
from trm.kernels import loss, plain
from trm.losses import loss_and_metrics

BATCH, PREFIX, CELLS, VOCAB = 5, 3, 140, 11


def logits_and_labels() -> tuple[torch.Tensor, torch.Tensor]:
    logits = random(BATCH, PREFIX + CELLS, loss.COLUMNS, scale=2.0)
    labels = torch.randint(0, VOCAB, (BATCH, CELLS), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    logits[1, PREFIX:, :VOCAB].scatter_(1, labels[1].long()[:, None], 9.0)  # one sequence is all right
    logits[2, PREFIX:, :VOCAB] = 0  # every position is a tie: the first token wins
    labels[0, :5] = IGNORE
    labels[3] = IGNORE
    return logits, labels


@pytest.mark.parametrize("part", [loss, plain], ids=["kernel", "plain"])
def test_loss_gradient_and_counts(part: Any) -> None:
    logits, labels = logits_and_labels()
    grad, rows = part.loss_and_grad(logits, labels, PREFIX, VOCAB, IGNORE)
    x = logits.double().requires_grad_()
    all_halted = torch.ones(BATCH, dtype=torch.bool)
    output = Output(x[:, PREFIX:, :VOCAB], x[:, 0, VOCAB : VOCAB + 2], labels, all_halted, all_halted.int())
    total, metrics = loss_and_metrics(output)
    (true,) = torch.autograd.grad(total / BATCH, x)
    assert error(grad, true) < CLOSE
    assert error(rows[:, :2].double().sum(0), metrics[5:]) < CLOSE
    scored = labels != IGNORE
    right = ((logits[:, PREFIX:, :VOCAB].argmax(-1) == labels) & scored).sum(-1)
    assert torch.equal(rows[:, 2], right.float())
    assert torch.equal(rows[:, 3], scored.sum(-1).float())
