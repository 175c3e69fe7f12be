"""Tiny configurations, puzzles and states shared by the tests of trm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from relay.torch import rng
from tests.trm.tables import Shelf
from trm import sharedtable
from trm.config import Arch, TrainConfig
from trm.data.dataset import Batch
from trm.model import Sizes
from trm.train import EagerStep, TrainState

SIZES = Sizes(seq_len=7, vocab_size=5, num_identifiers=3)

TINY = Arch(
    hidden_size=16,
    num_heads=2,
    expansion=1.0,
    L_layers=1,
    H_cycles=2,
    L_cycles=1,
    puzzle_emb_ndim=16,
    puzzle_emb_len=1,
    forward_dtype="float32",
    halt_max_steps=4,
)


def tiny_config(**changes: Any) -> TrainConfig:
    """Attention with RoPE, batch 6; keywords change the architecture or, failing that, the training."""
    of_arch = {key: changes.pop(key) for key in list(changes) if key in Arch.model_fields}
    settings: dict[str, Any] = {
        "threads": 1,
        "batch_size": 6,
        "lr": 1e-2,
        "lr_warmup_steps": 2,
        "puzzle_emb_lr": 1e-2,
        "ema_rate": 0.9,
    } | changes
    return TrainConfig(task="tiny", arch=TINY.model_copy(update=of_arch), **settings)


def tiny_batch(step: int, size: int = 6) -> Batch:
    """A function of the step: labels are the inputs plus one, the last cell is not asked."""
    shape = (size, SIZES.seq_len)
    inputs = rng.integers(0, step, 90, shape, 1, SIZES.vocab_size - 1).to(torch.int32)
    labels = inputs + 1
    labels[:, -1] = -100
    ids = rng.integers(0, step, 91, (size,), 0, SIZES.num_identifiers).to(torch.int32)
    return Batch(inputs, labels, ids)


def train(state: TrainState, until: int) -> torch.Tensor:
    """Plain steps; the last one's metrics."""
    metrics = torch.zeros(7)
    while state.step < until:
        metrics = EagerStep()(state, tiny_batch(state.step, state.config.batch_size))
    return metrics


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tiny tensors gain nothing from a second thread, and busy machines lose much."""
    torch.set_num_threads(1)


@pytest.fixture
def config() -> Callable[..., TrainConfig]:
    return tiny_config


@pytest.fixture
def make() -> Callable[..., TrainState]:
    """make(steps, **changes): a tiny state after some steps."""

    def build(steps: int = 0, **changes: Any) -> TrainState:
        state = TrainState(tiny_config(**changes), SIZES)
        train(state, steps)
        return state

    return build


@pytest.fixture
def run() -> Callable[[TrainState, int], torch.Tensor]:
    return train


@pytest.fixture
def batch_at() -> Callable[..., Batch]:
    return tiny_batch


@pytest.fixture
def sizes() -> Sizes:
    return SIZES


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture
def no_small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal may be much larger than its table is, as those of small tables soon are."""
    monkeypatch.setattr(sharedtable, "SHARE", 10.0)
