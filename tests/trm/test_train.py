"""A training step: order, determinism, independence of everything but seed and step."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from relay.torch.snapshot import state_hash
from trm.losses import METRICS
from trm.train import EagerStep, update_weights


def hash_of(state) -> str:
    return state_hash(state.canonical(), state.step, state.config.seed)


@pytest.mark.slow
@pytest.mark.parametrize("mlp_t", [True, False])
def test_hundreds_of_steps_learn_and_stay_finite(make, run, mlp_t: bool) -> None:
    positions = "none" if mlp_t else "rope"
    state = make(0, mlp_t=mlp_t, pos_encodings=positions, batch_size=4, lr_warmup_steps=50, H_cycles=1)
    first = run(state, 1)
    last = run(state, 300)
    assert state.step == 300
    loss = METRICS.index("lm_loss")
    assert last[loss] < first[loss] / 20
    assert all(value.isfinite().all() for value in state.tensors().values() if value.is_floating_point())


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(make) -> None:
    assert hash_of(make(5)) == hash_of(make(5))
    assert hash_of(make(5)) != hash_of(make(5, seed=1))


def test_no_global_randomness_is_read_or_left_behind(make, batch_at) -> None:
    calm, shaken = make(0), make(0)
    for step in range(6):
        EagerStep()(calm, batch_at(step))
        for shake in (torch.manual_seed, np.random.seed, random.seed):
            shake(step * 7919 + 1)
        before = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
        EagerStep()(shaken, batch_at(step))
        after = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
        assert torch.equal(before[0], after[0])
        assert before[1:] == after[1:]
    assert hash_of(calm) == hash_of(shaken)


def test_the_ema_starts_at_the_weights_and_follows_the_updated_ones(make, batch_at) -> None:
    state = make(0, ema_rate=0.75)
    before = state.params.buffer.clone()
    assert torch.equal(state.ema.buffer, before)
    EagerStep()(state, batch_at(0))
    expected = 0.75 * before + 0.25 * state.params.buffer
    assert torch.allclose(state.ema.buffer, expected, atol=1e-6)
    assert "inner.puzzle_emb.weights" not in state.ema.views
    assert make(1, ema=False).ema is None


def test_only_touched_rows_of_the_puzzle_table_change(make, batch_at) -> None:
    state = make(0)
    batch = batch_at(0)
    batch.puzzle_identifiers[:] = 1
    EagerStep()(state, batch)
    changed = state.model.inner.puzzle_emb.weights.any(dim=1)
    assert changed.tolist() == [False, True, False]


def test_weights_move_by_the_scheduled_rate(make) -> None:
    """The first update of each weight is 0.9967 of the warm-up's first rate, against the gradient's sign."""
    state = make(0, weight_decay=0.0, lr=1e-2, lr_warmup_steps=10)
    before = state.params.buffer.clone()
    state.grads.buffer.normal_(generator=torch.Generator().manual_seed(0))
    state.step = 1
    update_weights(state, torch.zeros(1), None)
    moved = (state.params.buffer - before) * state.grads.buffer.sign()
    assert torch.allclose(moved, torch.full_like(moved, -0.9967e-3), rtol=1e-3)


def test_a_model_without_puzzle_table_trains(make) -> None:
    state = make(2, puzzle_emb_ndim=0, puzzle_emb_len=0, pos_encodings="learned")
    assert not any("puzzle_emb" in name for name in state.tensors())


def test_hostile_carries_are_refused(make) -> None:
    for name, value in (("inputs", 5), ("labels", -1), ("puzzle_identifiers", 3), ("steps", 9)):
        state = make(1)
        state.check_carry()
        getattr(state.carry, name).view(-1)[0] = value
        with pytest.raises(ValueError, match=f"carry/{name}"):
            state.check_carry()
