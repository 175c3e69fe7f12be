"""The looped stack: causal in every pass, plain as a special case, and no padding among the answers."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from lm import model as network
from lm.config import Refine
from lm.model import IGNORE, norm, padded, shapes
from lm.train import TrainState, losses_of
from tests.lm.small import VOCABULARY, batch_at, moved, small

LOOPED = {"steps": 3, "loops": 2}


def test_before_the_first_step_every_token_is_equally_likely() -> None:
    config = small(**LOOPED)
    batch = batch_at(0, config)
    losses = losses_of(TrainState(config, VOCABULARY).model, config, batch) / (batch.targets != IGNORE).sum()
    assert losses.tolist() == pytest.approx([math.log(VOCABULARY)] * 3, rel=1e-6)


def test_no_position_sees_a_later_token() -> None:
    config = small(**LOOPED)
    state, tokens = moved(config), batch_at(0, config).inputs
    before = state.model.answers(tokens, config.refine, 3)
    for place in (0, 3, 7):
        other = tokens.clone()
        other[:, place] = (other[:, place] + 1) % VOCABULARY
        for one, two in zip(before, state.model.answers(other, config.refine, 3), strict=True):
            same = (one == two).all(-1).all(0)
            assert same[:place].all() and not same[place:].any()


def test_one_step_without_a_loop_is_a_plain_decoder() -> None:
    """Bit for bit, with the blocks written out again."""
    state, tokens = moved(small()), batch_at(0).inputs
    (found,) = state.model.answers(tokens, Refine(), 1)
    h = norm(F.embedding(tokens, state.params.views["embed"]))
    for block in state.model.stack.blocks:
        h = block(h, state.model.stack.cos, state.model.stack.sin)
    assert torch.equal(found, norm(h))


def test_more_steps_continue_fewer_and_shorter_rows_are_their_beginning() -> None:
    state, tokens = moved(small(**LOOPED)), batch_at(0).inputs
    two, three = (state.model.answers(tokens, state.config.refine, steps) for steps in (2, 3))
    assert all(torch.equal(a, b) for a, b in zip(two, three, strict=False))
    short = state.model.answers(tokens[:, :5], state.config.refine, 3)[-1]
    assert torch.allclose(short, three[-1][:, :5], atol=1e-5)


def test_padding_is_never_predicted() -> None:
    state = moved(small())
    assert padded(VOCABULARY) == 64 and state.params.views["head"].shape[0] == 64
    state.params.views["head"][VOCABULARY:] = 1e3
    logits = state.model.logits(state.model.answers(batch_at(0).inputs, Refine(), 1)[0])
    assert logits.shape[-1] == VOCABULARY and float(logits.detach().abs().max()) <= network.CAP


def test_matrices_of_one_shape_are_one_stack_of_the_flat_buffer() -> None:
    state = TrainState(small(width=24, heads=3), VOCABULARY)
    for place, shape in state.stacks:
        stack = state.params.buffer[place].view(shape)
        stack += torch.arange(1.0, shape[0] + 1)[:, None, None]
    fresh = TrainState(small(width=24, heads=3), VOCABULARY).params.views
    added = {name: (value - fresh[name]).unique().numel() for name, value in state.params.views.items()}
    assert {added[name] for name in ("embed", "head")} == {1}
    values = [float((state.params.views[name] - fresh[name]).mean()) for name in fresh if name.startswith("blocks")]
    assert [round(value) for value in values] == [*range(1, 9), 1, 2, 1, 2]


def test_weights_are_a_function_of_the_seed() -> None:
    states = [TrainState(small(seed=seed), VOCABULARY) for seed in (0, 0, 1)]
    same = [torch.equal(states[0].params.buffer, other.params.buffer) for other in states[1:]]
    assert same == [True, False]
    assert set(shapes(small().arch, VOCABULARY)) == set(states[0].model.named())
    spread = float(states[0].params.views["blocks.0.q"].std())
    assert spread == pytest.approx(1 / math.sqrt(16), rel=0.2)
