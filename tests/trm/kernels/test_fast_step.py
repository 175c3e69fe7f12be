"""The hand-written step equals the plain one: losses, gradients, halting, table, carry; part by part and all fused."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch

from tests.trm.kernels.support import error
from trm.config import Arch, TrainConfig
from trm.data.dataset import IGNORE, Batch
from trm.journal import Journal
from trm.kernels.components import Components, fused_components, plain_components
from trm.kernels.fast_step import FastStep, unavailable
from trm.model import Sizes
from trm.optim import lr_scale
from trm.train import EagerStep, TrainState

SIZES = Sizes(seq_len=8, vocab_size=6, num_identifiers=3)
ARCH = Arch(
    hidden_size=64,
    num_heads=2,
    H_cycles=2,
    L_cycles=2,
    puzzle_emb_ndim=64,
    puzzle_emb_len=3,
    mlp_t=True,
    pos_encodings="none",
    forward_dtype="float32",
    halt_max_steps=3,
    halt_exploration_prob=0.5,
)
CONFIG = TrainConfig(task="test", batch_size=3, arch=ARCH, lr=1e-3, puzzle_emb_lr=1e-2, lr_warmup_steps=2)


def new_state(config: TrainConfig = CONFIG) -> TrainState:
    """A state whose halting head says different things about different puzzles."""
    state = TrainState(config, SIZES)
    g = torch.Generator().manual_seed(1)
    state.model.inner.puzzle_emb.weights.copy_(torch.randn(3, 64, generator=g) * 0.1)
    state.params.views["inner.q_head.weight"].copy_(torch.randn(2, 64, generator=g) * 0.05)
    state.params.views["inner.q_head.bias"].fill_(0)
    state.reset_ema()
    return state


def batch_at(step: int) -> Batch:
    g = torch.Generator().manual_seed(10 + step)
    tokens = torch.randint(0, 6, (2, 3, 8), generator=g, dtype=torch.int32)
    tokens[1, 0, :3] = IGNORE
    return Batch(tokens[0], tokens[1], torch.randint(0, 3, (3,), generator=g, dtype=torch.int32))


def assert_alike(one: TrainState, other: TrainState) -> None:
    """All but one value in 10,000: where a gradient is zero but for rounding, a first update has a sign by chance."""
    ours, theirs = one.canonical(), other.canonical()
    for name in theirs:
        far = ~torch.isclose(ours[name], theirs[name], rtol=1e-4, atol=1e-4)
        assert far.double().mean() < 1e-4, name


def compare(parts: Components, steps: int, config: TrainConfig = CONFIG) -> None:
    """Each step starts from the same state on both sides, because the recursion amplifies rounding."""
    for step in range(steps):
        plain, fast = new_state(config), new_state(config)
        eager = EagerStep()
        for earlier in range(step):
            for state in (plain, fast):
                eager(state, batch_at(earlier))
        step_of = FastStep(parts, graph=False)
        expected, got = eager(plain, batch_at(step)), step_of(fast, batch_at(step))
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
        assert error(fast.grads.buffer, plain.grads.buffer) < 1e-4
        assert fast.step == plain.step
        assert_alike(fast, plain)


def test_plain_parts_equal_the_plain_step() -> None:
    compare(plain_components(), 3)


@pytest.mark.parametrize("positions", ["rope", "none"])
def test_plain_parts_equal_the_plain_step_with_attention(positions: str) -> None:
    arch = ARCH.model_copy(update={"mlp_t": False, "pos_encodings": positions})
    compare(plain_components(), 2, CONFIG.model_copy(update={"arch": arch}))


@pytest.mark.parametrize("mlp_t", [True, False])
@pytest.mark.parametrize("parts", [2, 3])
def test_a_split_batch_is_the_same_function(mlp_t: bool, parts: int) -> None:
    """Gradients of the parts are added up in order; the loss is a mean over the whole batch."""
    config = CONFIG.model_copy(update={"arch": ARCH.model_copy(update={"mlp_t": mlp_t})})
    whole, split = new_state(config), new_state(config)
    for index in range(2):
        expected = FastStep(plain_components(), graph=False)(whole, batch_at(index))
        got = FastStep(plain_components(), graph=False, parts=parts)(split, batch_at(index))
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
        assert error(split.grads.buffer, whole.grads.buffer) < 1e-4
        assert_alike(split, whole)


def test_the_loss_kernel_divides_by_the_whole_batch() -> None:
    logits, labels = torch.randn(3, 11, 16, generator=torch.Generator().manual_seed(0)), batch_at(0).labels
    for kernels in (plain_components().loss, fused_components().loss):
        alone, _ = kernels.loss_and_grad(logits, labels, 3, 6, IGNORE)
        part, _ = kernels.loss_and_grad(logits, labels, 3, 6, IGNORE, 12)
        torch.testing.assert_close(part, alone / 4)


@pytest.mark.parametrize("parts", [1, 3])
def test_its_journal_leads_to_its_own_table(parts: int) -> None:
    """From the very sums that decided the signs: another kernel's could have another sign where one is almost zero."""
    state = new_state()
    table = state.model.inner.puzzle_emb.weights
    journal = state.journal = Journal(3, 64, table.device, 0)
    before, step = table.clone(), FastStep(plain_components(), graph=False, parts=parts)
    for number in range(4):
        journal.open(CONFIG.puzzle_emb_lr * lr_scale(CONFIG, number + 1), CONFIG.puzzle_emb_weight_decay)
        step(state, batch_at(number))
    record = journal.take().record
    record.check((3, 64))
    record.replay(before)
    assert record.steps == 4 and torch.equal(before, table)


def test_without_puzzle_table_and_ema() -> None:
    arch = ARCH.model_copy(update={"puzzle_emb_ndim": 0, "puzzle_emb_len": 0})
    config = CONFIG.model_copy(update={"arch": arch, "ema": False})
    state, other = (TrainState(config, SIZES) for _ in range(2))
    batch = batch_at(0)
    FastStep(plain_components(), graph=False)(state, batch)
    EagerStep()(other, batch)
    assert error(state.grads.buffer, other.grads.buffer) < 1e-5


def test_fused_parts_equal_the_plain_step() -> None:
    arch = ARCH.model_copy(update={"H_cycles": 1, "L_cycles": 1, "L_layers": 1})
    small = CONFIG.model_copy(update={"arch": arch})
    compare(fused_components(), 1, small)


def test_fused_attention_equals_the_plain_step() -> None:
    """With the other parts plain, to be quick: they are tested above."""
    arch = ARCH.model_copy(update={"H_cycles": 1, "L_cycles": 1, "mlp_t": False, "pos_encodings": "rope"})
    parts = replace(plain_components(), attention=fused_components().attention)
    compare(parts, 1, CONFIG.model_copy(update={"arch": arch}))


def test_two_fast_steps_give_the_same_bytes() -> None:
    states = [new_state(), new_state()]
    for state in states:
        step = FastStep(plain_components(), graph=False)
        for index in range(3):
            step(state, batch_at(index))
    one, two = (state.canonical() for state in states)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_carry_replaced_from_outside_is_taken_up() -> None:
    """The next step starts from the carry that the state has, wherever it came from."""
    state, other = new_state(), new_state()
    step = FastStep(plain_components(), graph=False)
    step(state, batch_at(0))
    EagerStep()(other, batch_at(0))
    state.carry = replace(other.carry)
    expected, got = EagerStep()(other, batch_at(1)), step(state, batch_at(1))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_a_run_handed_on_equals_an_unbroken_one() -> None:
    """Everything the step keeps outside the state is rebuilt from it: bit for bit, at a new TrainState and FastStep."""
    whole, first, second = new_state(), new_state(), TrainState(CONFIG, SIZES)
    step = FastStep(plain_components(), graph=False)
    for index in range(4):
        step(whole, batch_at(index))
    step = FastStep(plain_components(), graph=False)
    for index in range(2):
        step(first, batch_at(index))
    for name, value in first.canonical().items():
        group, _, rest = name.partition("/")
        target = getattr(second.carry, rest) if group == "carry" else second.tensors()[name]
        target.copy_(value)
    second.step = first.step
    step = FastStep(plain_components(), graph=False)
    for index in range(2, 4):
        step(second, batch_at(index))
    expected, got = whole.canonical(), second.canonical()
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_one_step_can_serve_one_state_after_another() -> None:
    """Loading a checkpoint makes a new state: the step must not write to the old one."""
    step, states = FastStep(plain_components(), graph=False), [new_state(), new_state()]
    for state in states:
        step(state, batch_at(0))
    one, two = (state.canonical() for state in states)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_names_say_what_is_fused() -> None:
    assert FastStep(fused_components(), graph=False).name == "fused"
    mixed = replace(fused_components(), mixer=plain_components().mixer, loss=plain_components().loss)
    assert FastStep(mixed).name == "fused-without-mixer-loss-graph"


def test_the_name_tells_which_parts_are_specialized() -> None:
    special = ModuleType("special")
    special.SPECIALIZED = True  # type: ignore[attr-defined]
    assert replace(fused_components(), mixer=special).name == "fused-specialized-mixer"
    mixed = replace(fused_components(), channel=special, mixer=plain_components().mixer)
    assert mixed.name == "fused-specialized-channel-without-mixer"


def test_unavailable_without_a_gpu() -> None:
    assert "GPU" in str(unavailable("cpu", ARCH, SIZES))
