"""A step: its objective's gradient, its optimizers, and the same function in any number of parts."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lm import model as network
from lm.model import IGNORE
from lm.objective import Objective
from lm.optim import lr_scale, momentum_at, muon_, orthogonal
from lm.train import COMPILED_HEAD, Batch, RefiningStep, TrainState, head_loss
from relay.torch.snapshot import state_hash
from tests.lm.small import VOCABULARY, batch_at, moved, small, train
from tests.trm.test_together import Twins

LOSSES = torch.tensor([4.0, 3.5, 3.2, 3.1], dtype=torch.float64)
STEPS = {"steps": 3, "loops": 1}
OBJECTIVES = {
    "plain": {"steps": 1},
    "final": {**STEPS, "gradient": "through"},
    "uniform": {**STEPS, "weight_base": 1, "gradient": "step"},
    "extreme": {**STEPS, "weight_base": 10, "reward": 2, "gradient": "through"},
    "rewarded step": {**STEPS, "weight_base": 3, "reward": 1, "gradient": "step"},
}


@pytest.mark.parametrize(
    ("base", "reward", "weights", "value"),
    [
        ("last", 0, [0, 0, 0, 1], 3.1),
        (1, 0, [0.0625] * 4, 0.8625),
        (5, 1, [0.001603, 0.070513, 0.111493, 0.278446], 0.723163),
        (10, 2, [0.000225, 0.127250, 0.165359, 0.381273], 0.657371),
    ],
)
def test_the_objective_has_the_closed_form(base: object, reward: float, weights: list[float], value: float) -> None:
    objective = Objective.of(small(steps=4, weight_base=base, reward=reward).refine)
    found = [float(objective.weight(i, LOSSES[i - 1] if i else None)) for i in range(4)]
    assert found == pytest.approx(weights, abs=1e-6)
    assert float(objective.value(LOSSES)) == pytest.approx(value, abs=1e-6)


def by_autograd(state: TrainState, batch: Batch) -> dict[str, Tensor]:
    """Gradients of the objective as it is written, in one graph (or one a step), with whole logits."""
    config, model = state.config, state.model
    refine, losses = config.refine, list[Tensor]()
    for parameter in model.parameters():
        parameter.grad = None
    x = model.embedded(batch.inputs)
    y, z = x, torch.zeros_like(x)
    for _ in range(refine.steps):
        y, z = model.refined(x, y, z, refine.loops)
        losses.append(F.cross_entropy(model.logits(y).flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE))
        if refine.gradient == "step":
            y, z = y.detach(), z.detach()
    steps = refine.steps
    if refine.weight_base == "last":
        weights = [0.0] * (steps - 1) + [float(steps)]
    else:
        powers = [float(refine.weight_base) ** i for i in range(steps)]
        weights = [power / sum(powers) for power in powers]
    gained = sum(
        ((before.detach() - after) / (before.detach() + 1e-8) for before, after in itertools.pairwise(losses)),
        torch.zeros(()),
    )
    total = (sum(w * loss for w, loss in zip(weights, losses, strict=True)) - refine.reward * gained) / steps
    total.backward()  # type: ignore[no-untyped-call]
    return {name: parameter.grad for name, parameter in model.named().items() if parameter.grad is not None}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_those_of_the_objective_as_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with logits in chunks."""
    config = small(**OBJECTIVES[name])
    wanted = by_autograd(moved(config), batch_at(0, config))
    for chunk in (7 * VOCABULARY, network.LOGITS_AT_ONCE):
        monkeypatch.setattr(network, "LOGITS_AT_ONCE", chunk)
        state = moved(config)
        RefiningStep()(state, batch_at(0, config))
        for key, value in wanted.items():
            assert torch.allclose(state.grads.views[key], value, rtol=1e-3, atol=1e-6), key


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # of torch.compile itself
@pytest.mark.parametrize("name", ["uniform", "extreme"])
def test_a_compiled_head_computes_the_same_function(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In larger chunks of its own; an evaluation in between does not use it."""
    calls, compiled = list[int](), torch.compile

    def counted(part: Callable[..., Tensor], dynamic: bool) -> Callable[..., Tensor]:
        made = compiled(part, dynamic=dynamic, backend="aot_eager")
        if isinstance(part, torch.nn.Module):
            return made

        def call(*values: Tensor) -> Tensor:
            calls.append(len(values[0]))
            return made(*values)

        return call

    monkeypatch.setattr(torch, "compile", counted)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(network, "COMPILED_AT_ONCE", 16 * VOCABULARY)
    config, batch = small(**OBJECTIVES[name]), batch_at(0)
    eager, state = moved(config), moved(config)
    train(eager, 2)
    train(state, 2, RefiningStep(COMPILED_HEAD))
    assert torch.allclose(eager.params.buffer, state.params.buffer, atol=1e-5)
    tokens = batch.inputs.numel()
    assert calls.count(16) == 2 * config.refine.steps * tokens // 16 and tokens not in calls
    calls.clear()
    answers = state.model.answers(batch.inputs, config.refine, 1)
    head_loss(state.model, answers[0], batch.targets, None, compiled=False)
    assert not calls


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_parts_and_processes_compute_the_same_function(name: str) -> None:
    """Four parts within rounding; two processes give the bytes of two parts."""
    config = small(**OBJECTIVES[name], lr_matrix=1e-3, lr_embedding=1e-3)
    whole, split, two = moved(config), moved(config), moved(config)
    train(whole, 2)
    train(split, 2, RefiningStep(parts=4))
    assert torch.allclose(whole.params.buffer, split.params.buffer, atol=1e-4)
    train(two, 2, RefiningStep(parts=2))
    shared, twins = [moved(config), moved(config)], Twins()

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        train(shared[rank], 2, RefiningStep(peers=twins.peer(rank)))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({state_hash(state.canonical(), 2, 0) for state in (two, *shared)}) == 1


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 32, 8), (2, 8, 32)], ids=["square", "tall", "wide"])
def test_muon_is_torchs(shape: tuple[int, ...]) -> None:
    """torch.optim.Muon where torch has it (2.9): it multiplies in bfloat16, too."""
    if not hasattr(torch.optim, "Muon"):
        return  # the lowest torch that is promised; the golden numbers hold there, too
    w, m = torch.randn(shape, generator=torch.Generator().manual_seed(0)), torch.zeros(shape)
    theirs = [one.clone().requires_grad_() for one in w]
    oracle = torch.optim.Muon(theirs, lr=0.02, momentum=0.95, weight_decay=0.0, adjust_lr_fn="original")
    before = w.clone()
    for number in range(3):
        gradient = torch.randn(shape, generator=torch.Generator().manual_seed(number + 1))
        for one, own in zip(theirs, gradient, strict=True):
            one.grad = own.clone()
        oracle.step()
        muon_(w, gradient, m, 0.02, 0.95, torch.bfloat16)
    moved_by, should = w - before, torch.stack([one.detach() for one in theirs]) - before
    assert float((moved_by - should).norm() / should.norm()) < 0.01


def test_singular_values_come_near_one() -> None:
    for rows, columns in ((24, 24), (48, 12), (12, 48)):
        u, _, v = torch.linalg.svd(torch.randn(1, rows, columns, generator=torch.Generator().manual_seed(3)), False)
        uneven = u * torch.linspace(0.05, 1, min(rows, columns)) @ v
        values = torch.linalg.svdvals(orthogonal(uneven, torch.float32))
        assert float(values.min()) > 0.5 and float(values.max()) < 1.5


def test_rates_rise_stay_and_fall() -> None:
    config = small(lr_warmup_steps=10, decay_share=0.4, total_steps=100)
    assert [lr_scale(config, step) for step in (1, 5, 10, 60, 61)] == [0.1, 0.5, 1.0, 1.0, 1.0]
    assert [lr_scale(config, step) for step in (81, 100, 101)] == pytest.approx([0.5, 1 / 40, 0.0])
    assert lr_scale(small(total_steps=5), 50) == 1.0, "without a share the length does not matter"
    assert [momentum_at(step) for step in (1, 151, 301, 9000)] == pytest.approx([0.85, 0.9, 0.95, 0.95])


def test_the_gradients_norm_is_reported_and_clipped_only_if_asked() -> None:
    free, clipped = moved(small()), moved(small(grad_clip=0.01))
    for state in (free, clipped):
        assert float(train(state, 1)[-1]) == pytest.approx(float(free.grads.buffer.norm()), rel=1e-5)
    assert float(clipped.grads.buffer.norm()) == pytest.approx(0.01, rel=1e-3)
