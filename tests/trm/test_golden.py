"""Golden numbers of the reference at the published width: loss, logits, gradients, one update."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from trm.act import Output
from trm.config import Arch, TrainConfig
from trm.data.dataset import Batch
from trm.losses import loss_and_metrics
from trm.model import Sizes
from trm.parity import Recorder
from trm.train import EagerStep, TrainState

FOLDER = Path(__file__).parent.parent / "data" / "trm_golden"
VALUES = json.loads((FOLDER / "golden_values.json").read_text())
TRAIN = json.loads((FOLDER / "golden_train.json").read_text())
ARCHS = {"mlp": {"mlp_t": True, "pos_encodings": "none"}, "att": {}}


def formula(name: str, index: int, weight: torch.Tensor) -> torch.Tensor:
    """The golden runs' weights: a closed formula of the tensor's place in the alphabet and the element's place."""
    e = torch.arange(weight.numel(), dtype=torch.float64)
    base = (torch.sin(0.7 * e + 1.3 * index) * torch.cos(0.013 * e + index)).view(weight.shape)
    if name.endswith("_init"):
        return base
    if name.endswith("q_head.bias"):
        return base - 1
    if name.endswith("embed_tokens.embedding_weight"):
        return 0.06 * base
    if name.endswith("puzzle_emb.weights"):
        return 0.05 * base
    return base * 1.6 / weight.shape[-1] ** 0.5


def golden_state(kind: str) -> TrainState:
    arch = Arch(forward_dtype="float32", halt_exploration_prob=0, **ARCHS[kind])
    config = TrainConfig(
        task="golden",
        batch_size=4,
        arch=arch,
        lr=1e-2,
        puzzle_emb_lr=1e-2,
        weight_decay=1.0,
        puzzle_emb_weight_decay=1.0,
    )
    state = TrainState(config, Sizes(seq_len=81, vocab_size=11, num_identifiers=3))
    for index, (name, weight) in enumerate(sorted(state.model.state_dict().items())):
        weight.copy_(formula(name, index, weight))
    return state


def golden_batch() -> Batch:
    j = torch.arange(324, dtype=torch.int32).view(4, 81)
    labels = 5 * j % 9 + 2
    labels[0, :5] = -100
    labels[3] = -100
    return Batch(7 * j % 10 + 1, labels, torch.tensor([0, 1, 2, 0], dtype=torch.int32))


def near(value: float, rel: float = 1e-4) -> Any:
    return pytest.approx(value, rel=rel, abs=1e-6)


def check_output(kind: str, output: Output, metrics: torch.Tensor, rel: float) -> None:
    """Losses to 1e-4; `rel` for what rounding moves more."""
    total, lm, q_loss, logit_sum, square_sum, q, *_ = VALUES[f"{kind}-float32"]["step1"]
    assert metrics[5].item() + 0.5 * metrics[6].item() == near(total)
    assert metrics[5].item() == near(lm)
    assert metrics[6].item() == near(q_loss, rel)
    assert output.logits.double().sum().item() == near(logit_sum, rel)
    assert output.logits.double().square().sum().item() == near(square_sum, rel)
    assert output.q[:, 0].tolist() == near(q, rel)


@pytest.mark.slow
def test_mlp_training_step() -> None:
    state = golden_state("mlp")
    state.model.__class__ = Recorder
    metrics = EagerStep()(state, golden_batch())
    assert isinstance(state.model, Recorder)
    check_output("mlp", state.model.last, metrics, 1e-4)
    expected = TRAIN["mlp"][0]
    assert state.model.last.halted.tolist() == expected["halted"]
    for name, grad in state.grads.views.items():
        norm = state.params.views[name].double().norm().item()
        assert grad.double().norm().item() == near(expected["grad_norms"][f"model.{name}"]), name
        assert norm == near(expected["param_norm_after"][f"model.{name}"], 1e-6), name
    assert state.model.inner.puzzle_emb.weights.norm().item() == near(expected["puzzle_norm_after"], 1e-6)


@pytest.mark.slow
@torch.no_grad()
def test_attention_step() -> None:
    """At these weights attention amplifies rounding: our float64 is 6e-4 away from the golden sum of squares."""
    model = golden_state("att").model
    carry = model.refill(model.initial_carry(4), golden_batch())
    _, output = model(carry, model.inner.puzzle_rows(carry.puzzle_identifiers), None)
    check_output("att", output, loss_and_metrics(output)[1], 2e-3)
