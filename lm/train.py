"""The complete training state, and one training step.

A row's tokens go through all refinement steps; the losses are computed in chunks of tokens, each with its own backward
pass into the answer, so logits are never whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lm.config import BYTE_VALUES, LmConfig
from lm.model import DTYPES, IGNORE, Model, initial, shapes
from lm.objective import Objective
from lm.optim import adamw_, lr_scale, momentum_at, muon_, width_scale
from relay.torch import steps
from relay.torch.device import slow_bf16
from relay.torch.flat import Flat
from relay.torch.snapshot import Frozen
from relay.torch.steps import Sharing, groups, own_slices

EAGER, COMPILED, COMPILED_HEAD = "eager", "compiled", "compiled-head"
"""Names of steps, by what torch.compile compiles: nothing, the stack, the stack and the head."""
OTHERS = ("embed", "head")
"""Weights that AdamW trains."""
_SMALLEST_NORM = 1e-6


@dataclass(frozen=True)
class Batch:
    """Input of one training step."""

    inputs: Tensor
    """int64 (B, T): tokens."""
    targets: Tensor
    """int64 (B, T): the next tokens, IGNORE where none is scored."""


def activations(config: LmConfig, device: torch.device) -> torch.dtype:
    """Type of activations: float32 where bfloat16 is slow."""
    return torch.float32 if slow_bf16(device) else DTYPES[config.arch.forward_dtype]


def compiled(config: LmConfig) -> str:
    """Name of the compiled step. The head of bytes is a few short launches, so calling compiled code takes longer."""
    return COMPILED if config.data.vocab_size == BYTE_VALUES else COMPILED_HEAD


class TrainState:
    """All state that decides the rest of a run: weights, moments, step. AdamW's t is `step`.

    Parameters are views of `params.buffer`. Their gradients are views of `part.buffer` within a part of the batch, and
    are added up in `grads`.
    """

    def __init__(self, config: LmConfig, vocab_size: int, device: torch.device | str = "cpu") -> None:
        self.config, self.vocab_size, self.device = config, vocab_size, torch.device(device)
        every = shapes(config.arch, vocab_size)
        self.params, self.m = Flat(every, self.device), Flat(every, self.device)
        self.grads, self.part = Flat(every, self.device), Flat(every, self.device)
        self.v = Flat({name: every[name] for name in OTHERS}, self.device)
        for name, value in initial(config.arch, vocab_size, config.seed).items():
            self.params.views[name].copy_(value)
        self.model = Model(config.arch, vocab_size, self.params.views, activations(config, self.device))
        for name, parameter in self.model.named().items():
            parameter.grad = self.part.views[name]
        self.stacks = _stacks(every)
        self.step = 0

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the state by its logical name, live: writing to one changes the state."""
        return _named({group: flat.views for group, flat in self._flats.items()})

    def canonical(self) -> dict[str, Tensor]:
        """The content of P9's digest."""
        return self.tensors()

    def frozen(self) -> Frozen:
        """Copies, so that later steps do not change them; on a GPU only queued. One copy for each buffer."""
        copies = {group: flat.buffer.clone() for group, flat in self._flats.items()}
        views = {group: flat.views_of(copies[group]) for group, flat in self._flats.items()}
        return Frozen(_named(views), list(copies.values()))

    @property
    def _flats(self) -> dict[str, Flat]:
        return {"raw": self.params, "m": self.m, "v": self.v}


def _named(groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{group}/{name}": value for group, named in groups.items() for name, value in named.items()}


def _stacks(every: Mapping[str, tuple[int, ...]]) -> list[tuple[slice, tuple[int, ...]]]:
    """(place in a flat buffer, (n, rows, columns)) of the blocks' matrices of each shape."""
    found, start = list[tuple[slice, tuple[int, ...]]](), 0
    for shape in dict.fromkeys(shape for name, shape in every.items() if name not in OTHERS):
        count = sum(one == shape for name, one in every.items() if name not in OTHERS)
        size = count * shape[0] * shape[1]
        found.append((slice(start, start + size), (count, *shape)))
        start += size
    return found


Step = steps.Step[TrainState, Batch]
"""One way to compute a training step; returns the mean losses after each refinement step, the objective and the norm of
the gradient, float64 (N + 2,), on the device."""


class RefiningStep:
    """The definition: plain PyTorch operations, around a stack that may be compiled.

    parts: micro-batches, one after another. The function is the same for each number of them: losses are sums over all
    tokens of the batch, divided once, and a reward uses the losses of the whole batch.
    """

    atomic = True

    def __init__(self, name: str = EAGER, parts: int = 1, peers: Sharing | None = None) -> None:
        self.name, self.parts, self.peers = name, parts, peers
        self.timings: Mapping[str, float] = {}

    @property
    def groups(self) -> str:
        """The division of the batch."""
        return groups(self.parts, self.peers)

    def __call__(self, state: TrainState, batch: Batch) -> Tensor:
        if self.name == EAGER or state.model.compiled:
            return self._step(state, batch)
        began = time.monotonic()
        state.model.compile_parts(head=self.name == COMPILED_HEAD)
        metrics = self._step(state, batch)
        torch.cuda.synchronize(state.device)
        self.timings = {"compile": time.monotonic() - began}
        return metrics

    def _step(self, state: TrainState, batch: Batch) -> Tensor:
        config = state.config
        objective = Objective.of(config.refine)
        parts = own_slices(config.batch_size, self.parts, self.peers)
        own = [Batch(batch.inputs[part], batch.targets[part]) for part in parts]
        count = (batch.targets != IGNORE).sum().clamp(min=1)
        known = None
        if objective.needs_losses() and (len(parts) > 1 or self.peers is not None):
            with torch.no_grad():
                known = self._exchanged(sum_of([losses_of(state.model, config, one) for one in own]), []) / count
        state.grads.buffer.zero_()
        losses = torch.zeros(config.refine.steps, dtype=torch.float64, device=state.device)
        for one in own:
            state.part.buffer.zero_()
            losses += _backward(state.model, config, objective, one, count, known)
            state.grads.buffer.add_(state.part.buffer)
        losses = self._exchanged(losses, [state.grads.buffer]) / count
        state.step += 1
        norm = update_weights(state)
        return torch.cat((losses, objective.value(losses)[None], norm.double()[None]))

    def _exchanged(self, losses: Tensor, sums: list[Tensor]) -> Tensor:
        """The losses of all processes; adds up `sums` in place."""
        if self.peers is not None:
            self.peers.exchange([*sums, losses], [])
        return losses


def sum_of(values: list[Tensor]) -> Tensor:
    """In their order."""
    return sum(values[1:], values[0])


def losses_of(model: Model, config: LmConfig, batch: Batch) -> Tensor:
    """float64 (N,): the sum of the losses after each refinement step, without gradients."""
    answers = model.answers(batch.inputs, config.refine, config.refine.steps, compiled=True)
    return torch.stack([head_loss(model, y, batch.targets, None)[0] for y in answers])


def _backward(
    model: Model, config: LmConfig, objective: Objective, batch: Batch, count: Tensor, known: Tensor | None
) -> Tensor:
    """float64 (N,): the sum of the losses after each refinement step; adds the gradients of a part of the batch.

    count: scored tokens of the whole batch. known: the whole batch's mean losses, where a weight depends on them.
    """
    refine, found = config.refine, list[Tensor]()
    through = refine.gradient == "through"
    embedded = model.embedded(batch.inputs)
    x = embedded.detach().requires_grad_()
    y, z = x, torch.zeros_like(x)
    held: list[tuple[Tensor, Tensor]] = []
    for step in range(refine.steps):
        later = through and any(objective.counts(other) for other in range(step, refine.steps))
        with torch.set_grad_enabled(objective.counts(step) or later):
            y, z = model.refined(x, y, z, refine.loops)
        if objective.counts(step):
            before = None if step == 0 else known[step - 1] if known is not None else found[-1] / count
            loss, gradient = head_loss(model, y, batch.targets, objective.weight(step, before) / count)
            held.append((y, gradient))
        else:
            loss, _ = head_loss(model, y, batch.targets, None)
        found.append(loss)
        if not through:
            _into_weights(held)
            y, z = y.detach(), z.detach()
    _into_weights(held)
    if x.grad is not None:
        torch.autograd.backward(embedded, x.grad)
    return torch.stack(found)


def _into_weights(held: list[tuple[Tensor, Tensor]]) -> None:
    """Go back from answers with their gradients, and forget them."""
    if held:
        torch.autograd.backward([y for y, _ in held], [gradient for _, gradient in held])
    held.clear()


def head_loss(
    model: Model, y: Tensor, targets: Tensor, scale: Tensor | None, compiled: bool = True
) -> tuple[Tensor, Tensor]:
    """The sum of the cross-entropies of an answer (float64), and its gradient by the answer, times `scale`, which the
    head gets too. Without a scale there is no gradient. compiled: for rows of the training's shape.
    """
    flat, wanted = y.detach().flatten(0, -2), targets.flatten()
    total = torch.zeros((), dtype=torch.float64, device=y.device)
    gradient = torch.zeros_like(flat) if scale is not None else flat.new_zeros(0)
    chunk, summed_loss = model.chunked(compiled)
    for start in range(0, len(flat), chunk):
        part = flat[start : start + chunk].requires_grad_(scale is not None)
        with torch.set_grad_enabled(scale is not None):
            loss = summed_loss(part, wanted[start : start + chunk])
        total += loss.detach()
        if scale is not None:
            torch.autograd.backward(loss, scale.to(device=loss.device, dtype=loss.dtype))
            assert part.grad is not None, "the loss depends on the answer"
            gradient[start : start + chunk] = part.grad
    return total, gradient.view_as(y) if scale is not None else gradient


@torch.no_grad()
def update_weights(state: TrainState) -> Tensor:
    """Clip if asked, then Muon and AdamW, with the rates of `state.step` (the step that ends here). Returns the norm of
    the gradient before that, 0-d.
    """
    config, grads = state.config, state.grads.buffer
    norm: Tensor = torch.linalg.vector_norm(grads)
    if config.grad_clip:
        grads.mul_((config.grad_clip / (norm + _SMALLEST_NORM)).clamp(max=1.0))
    scale, momentum = lr_scale(config, state.step), momentum_at(state.step)
    product = torch.float32 if slow_bf16(state.device) or state.device.type == "cpu" else torch.bfloat16
    for place, shape in state.stacks:
        w, grad, m = (flat.buffer[place].view(shape) for flat in (state.params, state.grads, state.m))
        muon_(w, grad, m, config.lr_matrix * scale, momentum, product)
    others = scale * width_scale(config.arch.d)
    for name, rate in zip(OTHERS, (config.lr_embedding, config.lr_head), strict=True):
        w, grad, m, v = (flat.views[name] for flat in (state.params, state.grads, state.m, state.v))
        adamw_(w, grad, m, v, t=state.step, lr=rate * others)
    return norm
