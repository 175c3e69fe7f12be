"""Logits, loss, gradients and optimizer steps of nanochat 4a87a0d, as numbers (float32, torch 2.9, on a CPU)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lm import train
from lm.config import Arch
from lm.train import Batch, RefiningStep, TrainState
from tests.lm.small import small

THEIRS = {"q": "c_q", "k": "c_k", "v": "c_v", "o": "c_proj", "up": "c_fc", "down": "c_proj"}
STEPS = [
    (6.921860, (32.826245, 0.845869, 0.135335), (27.169754, 12.511682, 89.287136)),
    (4.551073, (4.418516, 0.545328, 0.018552), (27.176410, 12.502348, 118.087149)),
    (4.172991, (8.193696, 0.489451, 0.018189), (27.185479, 12.594211, 142.894161)),
    (3.708940, (4.259380, 0.407544, 0.011906), (27.197301, 12.768652, 164.137427)),
]
"""Loss, norms of the gradients of blocks, head and embedding, norms of the weights after the step."""


def their_name(name: str) -> str:
    if name in ("embed", "head"):
        return {"embed": "transformer.wte.weight", "head": "lm_head.weight"}[name]
    _, layer, weight = name.split(".")
    part = "mlp" if weight in ("up", "down") else "attn"
    return f"transformer.h.{layer}.{part}.{THEIRS[weight]}.weight"


@pytest.fixture
def state() -> TrainState:
    arch = Arch(depth=2, width=64, heads=2, context=32)
    made = TrainState(small(lr_matrix=0.02).model_copy(update={"arch": arch}), 256)
    names = sorted(made.params.views, key=their_name)
    for i, name in enumerate(names):
        value = made.params.views[name]
        e = np.arange(value.numel(), dtype=np.float64)
        base = np.sin(0.7 * e + 1.3 * i) * np.cos(0.013 * e + i)
        scaled = base if name == "embed" else base * 1.6 / np.sqrt(value.shape[-1])
        value.copy_(torch.from_numpy(scaled).float().view(value.shape))
    return made


def tokens() -> Batch:
    s = torch.tensor([(7 * j + j // 5) % 251 for j in range(132)]).view(4, 33)
    return Batch(s[:, :-1].contiguous(), s[:, 1:].contiguous())


def norms(views: dict[str, torch.Tensor]) -> tuple[float, ...]:
    blocks = torch.cat([value.flatten() for name, value in views.items() if name.startswith("blocks")])
    return tuple(float(value.norm()) for value in (blocks, views["head"], views["embed"]))


def test_logits(state: TrainState) -> None:
    (y,) = state.model.answers(tokens().inputs, state.config.refine, 1)
    logits = state.model.logits(y).detach().double()
    assert float(logits.sum()) == pytest.approx(-8636.843559, rel=1e-4)
    assert float(logits.square().sum()) == pytest.approx(137819.350881, rel=1e-4)
    assert logits[2, 17, :4].tolist() == pytest.approx([-3.766278, -2.023635, 0.194643, -1.924772], rel=1e-4)


def test_losses_gradients_and_four_optimizer_steps(state: TrainState, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step tightly; later ones loosely, because their Muon multiplies in bfloat16."""
    monkeypatch.setattr(train, "momentum_at", lambda step: 0.95)
    for number, (loss, gradients, weights) in enumerate(STEPS):
        metrics = RefiningStep()(state, tokens())
        exact = number == 0
        assert float(metrics[0]) == pytest.approx(loss, rel=1e-4 if exact else 2e-2)
        assert norms(state.grads.views) == pytest.approx(gradients, rel=1e-4 if exact else 0.15)
        assert norms(state.params.views) == pytest.approx(weights, rel=1e-4 if exact else 1e-3)
