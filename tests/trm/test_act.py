"""The carry: who is refilled, who halts, what is never read."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.torch import rng
from trm.act import TRM, exploration
from trm.config import Arch
from trm.model import Sizes
from trm.train import EagerStep

ARCH = Arch(hidden_size=4, num_heads=1, L_layers=1, H_cycles=1, L_cycles=1, puzzle_emb_ndim=4, puzzle_emb_len=1)
MODEL = TRM(ARCH, Sizes(seq_len=2, vocab_size=3, num_identifiers=1))


@given(st.lists(st.tuples(st.integers(1, 16), st.floats(-5, 5), st.integers(0, 16)), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_who_halts(slots: list[tuple[int, float, int]]) -> None:
    steps, q, least = (torch.tensor(column) for column in zip(*slots, strict=True))
    logits = torch.stack((q, torch.zeros_like(q)), dim=1)
    training = MODEL.decide(steps, logits, least)
    for halted, (step, value, minimum) in zip(training.tolist(), slots, strict=True):
        assert halted == ((step >= 16 or torch.tensor(value).item() > 0) and step >= minimum)
    assert torch.equal(MODEL.decide(steps, logits, None), steps >= 16)


@given(st.lists(st.booleans(), min_size=6, max_size=6))
@settings(max_examples=20, deadline=None)
def test_halted_slots_take_the_batch_and_the_others_never_see_it(halted: list[bool]) -> None:
    carry = MODEL.initial_carry(6)
    carry.halted = torch.tensor(halted)
    carry.steps += 7
    carry.z_H += 5
    carry.inputs += 1
    batch = MODEL.initial_carry(6)
    batch.inputs += 2
    batch.labels += 2
    filled = MODEL.refill(carry, batch)
    for slot, fresh in enumerate(halted):
        assert filled.steps[slot] == (0 if fresh else 7)
        assert filled.inputs[slot].tolist() == ([2, 2] if fresh else [1, 1])
        assert filled.labels[slot].tolist() == ([2, 2] if fresh else [0, 0])
        expected = MODEL.inner.H_init.expand(3, 4) if fresh else torch.full((3, 4), 5.0, dtype=torch.bfloat16)
        assert torch.equal(filled.z_H[slot], expected)


def test_rows_of_halted_slots_do_not_matter(make, batch_at) -> None:
    one, two = make(3), make(3)
    assert one.carry.halted.any() or one.carry.steps.any()
    for state in (one, two):
        state.carry.halted[:3] = True
    for value in (two.carry.z_H, two.carry.z_L):
        value[:3] = float("nan")
    for value in (two.carry.inputs, two.carry.labels, two.carry.puzzle_identifiers, two.carry.steps):
        value[:3] = 2
    assert all(torch.equal(a, b) for a, b in zip(one.canonical().values(), two.canonical().values(), strict=True))
    for state in (one, two):
        EagerStep()(state, batch_at(3))
    assert all(torch.equal(a, b) for a, b in zip(one.canonical().values(), two.canonical().values(), strict=True))


def test_a_sequence_stays_at_most_halt_max_steps(make, batch_at) -> None:
    state = make(0, halt_exploration_prob=0)
    longest = 0
    for step in range(9):
        EagerStep()(state, batch_at(step))
        longest = max(longest, int(state.carry.steps.max()))
        assert torch.equal(state.carry.halted, state.carry.steps >= 4)
    assert longest == 4


def test_exploration_is_a_function_of_seed_and_step_and_has_the_stated_odds() -> None:
    least = exploration(Arch(halt_exploration_prob=0.25, halt_max_steps=5), 1, 2, 40_000, "cpu")
    assert torch.equal(least, exploration(Arch(halt_exploration_prob=0.25, halt_max_steps=5), 1, 2, 40_000, "cpu"))
    assert set(least.unique().tolist()) == {0, 2, 3, 4, 5}
    assert (least > 0).double().mean().item() == pytest.approx(0.25, abs=0.01)
    assert (least == 5).double().mean().item() == pytest.approx(0.25 / 4, abs=0.01)
    assert not exploration(Arch(halt_exploration_prob=0), 1, 2, 100, "cpu").any()
    assert exploration(Arch(halt_max_steps=1), 1, 2, 8, "cpu").shape == (8,)
    assert rng.Stream.EXPLORE_COIN != rng.Stream.EXPLORE_STEPS
