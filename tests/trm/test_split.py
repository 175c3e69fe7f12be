"""A batch computed in parts: the same function as unsplit, bit for bit the same after a resume, and labeled."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from relay.torch.snapshot import state_hash
from relay.torch.steps import slices
from trm.act import Carry
from trm.train import EagerStep, TrainState

BATCH = 7


def test_parts_cover_the_batch_in_order_and_differ_by_one_row_at_most() -> None:
    for rows, parts in ((7, 3), (768, 5), (4, 4), (9, 1)):
        found = slices(rows, parts)
        assert [index for part in found for index in range(rows)[part]] == list(range(rows))
        assert {part.stop - part.start for part in found} <= {rows // parts, -(-rows // parts)}
    for parts in (0, 8):
        with pytest.raises(ValueError, match="7 rows"):
            slices(7, parts)


@pytest.mark.parametrize("mlp_t", [True, False])
@pytest.mark.parametrize(("dtype", "close"), [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("parts", [2, 3, 4])
def test_a_split_step_is_the_same_function(make, batch_at, mlp_t: bool, dtype: str, close: float, parts: int) -> None:
    """Same loss, metrics, gradients, halting, carry; each step from one state, because recursion amplifies rounding."""
    changes = {
        "mlp_t": mlp_t, "pos_encodings": "none" if mlp_t else "rope", "forward_dtype": dtype, "batch_size": BATCH,
        "halt_exploration_prob": 0.5,
    }  # fmt: skip
    for before in (0, 3):
        whole, split = make(before, **changes), make(before, **changes)
        if dtype == "float64":
            _widen(whole), _widen(split)
        batch = batch_at(before, BATCH)
        expected, got = EagerStep()(whole, batch), EagerStep(parts)(split, batch)
        torch.testing.assert_close(got, expected, rtol=close, atol=close)
        assert split.step == whole.step
        for ours, theirs in zip(_gradients(split), _gradients(whole), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=10 * close, atol=close)
        for name in ("halted", "steps", "inputs", "labels", "puzzle_identifiers"):
            assert torch.equal(getattr(split.carry, name), getattr(whole.carry, name)), name
        torch.testing.assert_close(split.carry.z_H, whole.carry.z_H, rtol=10 * close, atol=10 * close)
        table = "raw/inner.puzzle_emb.weights"
        torch.testing.assert_close(split.tensors()[table], whole.tensors()[table], rtol=close, atol=close)


def _widen(state: TrainState) -> None:
    """Weights and their gradients in float64, apart from the flat buffers; for a step or its gradients, not a run."""
    for parameter in state.model.parameters():
        parameter.data = parameter.data.double()
        parameter.grad = torch.zeros_like(parameter.data)


def _gradients(state: TrainState) -> list[torch.Tensor]:
    return [p.grad for p in state.model.parameters()]


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


def test_the_loss_is_a_mean_over_the_whole_batch_however_unequal_the_parts(make, batch_at) -> None:
    """One row alone in its part weighs as much as each of the others."""
    batch = batch_at(0, 5)
    whole, split = make(0, batch_size=5), make(0, batch_size=5)
    EagerStep()(whole, batch)
    EagerStep(4)(split, batch)
    assert _distance(split.grads.buffer, whole.grads.buffer) < 1e-5


def test_handing_on_within_one_split_is_bitwise(make, batch_at) -> None:
    whole, first = make(0, batch_size=BATCH), make(0, batch_size=BATCH)
    for step in range(6):
        EagerStep(3)(whole, batch_at(step, BATCH))
    for step in range(3):
        EagerStep(3)(first, batch_at(step, BATCH))
    second = _handed_on(first)
    for step in range(3, 6):
        EagerStep(3)(second, batch_at(step, BATCH))
    assert _hash(second) == _hash(whole)


def _handed_on(state: TrainState) -> TrainState:
    """A new state with the canonical values only."""
    new = TrainState(state.config, state.sizes)
    values, targets = state.canonical(), new.tensors()
    for name, value in values.items():
        targets[name].copy_(value)
    new.step = state.step
    return new


def _hash(state: TrainState) -> str:
    return state_hash(state.canonical(), state.step, state.config.seed)


def test_a_part_of_a_carry_is_its_rows(make) -> None:
    carry = make(2).carry
    part = carry.part(slice(2, 5))
    assert all(torch.equal(getattr(part, f.name), getattr(carry, f.name)[2:5]) for f in fields(Carry))
