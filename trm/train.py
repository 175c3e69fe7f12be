"""The complete training state and one training step.

A step is a strategy: a named callable that takes (state, batch) and advances the state by one step. So fused kernels
or a captured graph can replace `EagerStep` on the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from relay.torch import steps
from relay.torch.device import slow_bf16
from relay.torch.flat import Flat
from relay.torch.snapshot import Frozen
from relay.torch.steps import Sharing, groups, own_slices
from trm.act import TRM, Carry, exploration, joined
from trm.config import TrainConfig
from trm.data.dataset import IGNORE, Batch
from trm.journal import Journal
from trm.losses import loss_and_metrics
from trm.model import Sizes
from trm.optim import adam_atan2_, ema_, lr_scale, sign_sgd_


class TrainState:
    """All state that decides the rest of a run: weights, EMA, moments, carry, step. Adam's t is `step`.

    Parameters are views of `params.buffer`, their gradients of `grads.buffer`. `ema` is None if it is turned off.
    """

    def __init__(self, config: TrainConfig, sizes: Sizes, device: torch.device | str = "cpu") -> None:
        self.config, self.sizes, self.device = config, sizes, torch.device(device)
        slow_bf16(self.device)  # cached before compilation, which cannot query the device
        self.model = TRM(config.arch, sizes, config.seed).to(self.device)
        shapes = {name: tuple(p.shape) for name, p in self.model.named_parameters()}
        self.params, self.grads = Flat(shapes, self.device), Flat(shapes, self.device)
        self.m, self.v = Flat(shapes, self.device), Flat(shapes, self.device)
        self.ema = Flat(shapes, self.device) if config.ema else None
        for name, parameter in self.model.named_parameters():
            self.params.views[name].copy_(parameter.detach())
            parameter.data = self.params.views[name]
            parameter.grad = self.grads.views[name]
        self.reset_ema()
        self.carry: Carry = self.model.initial_carry(config.batch_size)
        self.step = 0
        self.journal: Journal | None = None
        """Journal in which steps note changes of the puzzle table, if one is kept; not part of the state."""
        self.fetch: Callable[[], None] = lambda: None
        """Called before the state is read: a step that keeps it elsewhere copies it to these tensors."""

    def reset_ema(self) -> None:
        """EMA starts at the weights; called again after weights are imported."""
        if self.ema is not None:
            self.ema.buffer.copy_(self.params.buffer)

    def eval_weights(self) -> dict[str, Tensor]:
        """Parameters to evaluate with, by name: the EMA if there is one."""
        self.fetch()
        return (self.ema or self.params).views

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the state by its logical name, live: writing to one changes the state."""
        self.fetch()
        groups = {"raw": self.model.state_dict(), "m": self.m.views, "v": self.v.views, "carry": vars(self.carry)}
        if self.ema is not None:
            groups["ema"] = self.ema.views
        return {f"{group}/{name}": value for group, named in groups.items() for name, value in named.items()}

    def canonical(self) -> dict[str, Tensor]:
        """`tensors()` with copies of the carry in which rows of halted slots are zero: the content of P9's digest."""
        carry = {f"carry/{name}": value for name, value in self.carry.canonical().items()}
        return self.tensors() | carry

    def frozen(self, without: Collection[str] = ()) -> Frozen:
        """Copies of `canonical()` without some names, so that later steps do not change them; on a GPU only queued.

        One copy for each buffer: training waits for every launch. On a GPU torch's allocator gives a copy the memory
        of an earlier one that was freed.
        """
        self.fetch()
        flats = {"raw": self.params, "m": self.m, "v": self.v} | ({"ema": self.ema} if self.ema is not None else {})
        copies = {group: flat.buffer.clone() for group, flat in flats.items()}
        tensors = {
            f"{group}/{name}": view
            for group, flat in flats.items()
            for name, view in flat.views_of(copies[group]).items()
        }
        rest = {name: value for name, value in self.canonical().items() if name not in tensors and name not in without}
        rest = {name: value if name.startswith("carry/") else value.clone() for name, value in rest.items()}
        return Frozen(tensors | rest, [*copies.values(), *rest.values()])

    def check_carry(self) -> None:
        """Raises ValueError if the carry, read from an untrusted file, holds tokens or rows that do not exist."""
        carry, sizes = self.carry, self.sizes
        allowed = {
            "inputs": (carry.inputs, 0, sizes.vocab_size),
            "labels": (carry.labels.masked_fill(carry.labels == IGNORE, 0), 0, sizes.vocab_size),
            "puzzle_identifiers": (carry.puzzle_identifiers, 0, sizes.num_identifiers),
            "steps": (carry.steps, 0, self.config.arch.halt_max_steps + 1),
        }
        for name, (value, low, high) in allowed.items():
            if bool(((value < low) | (value >= high)).any()):
                raise ValueError(f"carry/{name} holds values outside {low} .. {high - 1}")


Step = steps.Step[TrainState, Batch]
"""One way to compute a training step; returns its METRICS, float64 (7,), on the device."""


class EagerStep:
    """The definition: plain PyTorch operations, in the order of reference/trm.md 5.4.

    parts: micro-batches, one after another. The function is the same, because no row's values depend on another's: only
    the weights' gradients are sums over rows, and they are added up in the order of the parts.
    """

    name = "eager"
    atomic = True

    def __init__(self, parts: int = 1, peers: Sharing | None = None) -> None:
        self.parts, self.peers = parts, peers
        self.timings: Mapping[str, float] = {}

    @property
    def groups(self) -> str:
        """The division of the batch."""
        return groups(self.parts, self.peers)

    def __call__(self, state: TrainState, batch: Batch) -> Tensor:
        config, model = state.config, state.model
        carry = model.refill(state.carry, batch)
        rows = model.inner.puzzle_rows(carry.puzzle_identifiers)
        if rows is not None:
            rows.requires_grad_()
        parts = own_slices(config.batch_size, self.parts, self.peers)
        after, metrics = _by_parts(state, carry, rows, parts)
        row_grads = None if rows is None else rows.grad
        if self.peers is not None:
            after = carry.replaced(slice(parts[0].start, parts[-1].stop), after)
            of_rows = [*vars(after).values(), *([] if row_grads is None else [row_grads])]
            self.peers.exchange([state.grads.buffer, metrics], of_rows)
        state.carry = after
        state.step += 1
        update_weights(state, carry.puzzle_identifiers, row_grads)
        return metrics


def _by_parts(state: TrainState, carry: Carry, rows: Tensor | None, parts: Sequence[slice]) -> tuple[Carry, Tensor]:
    """The refilled parts of a batch one after another: their carry after the step and the sum of their metrics.

    Leaves the sum of the gradients in the state's buffer, and in `rows`, the puzzle embeddings of the whole batch.
    """
    config = state.config
    min_halt = exploration(config.arch, config.seed, state.step, config.batch_size, state.device)
    state.grads.buffer.zero_()
    carries, metrics = [], []
    for part in parts:
        some = None if rows is None else rows[part]
        after, measured = _forward_backward(state.model, carry.part(part), some, min_halt[part], config.batch_size)
        carries.append(after)
        metrics.append(measured)
    return joined(carries), sum(metrics[1:], metrics[0])


def _forward_backward(
    model: TRM, carry: Carry, rows: Tensor | None, min_halt: Tensor, batch_size: int
) -> tuple[Carry, Tensor]:
    """A part of the batch, refilled: its carry after the step and its metrics; adds its gradients to the state's.

    batch_size is that of the whole batch, over which the loss is a mean.
    """
    after, output = model(carry, rows, min_halt)
    loss, metrics = loss_and_metrics(output)
    torch.autograd.backward(loss / batch_size)
    return after, metrics


def update_weights(state: TrainState, identifiers: Tensor, row_grads: Tensor | None) -> None:
    """Puzzle table, then parameters, then EMA, with the rates of `state.step` (the step that ends here)."""
    config = state.config
    scale = lr_scale(config, state.step)
    if row_grads is not None:
        table = state.model.inner.puzzle_emb.weights
        decay = config.puzzle_emb_weight_decay
        sign = sign_sgd_(table, identifiers, row_grads, config.puzzle_emb_lr * scale, decay)
        if state.journal is not None:
            state.journal.note(identifiers, sign)
    adam_atan2_(
        state.params.buffer,
        state.grads.buffer,
        state.m.buffer,
        state.v.buffer,
        t=state.step,
        lr=config.lr * scale,
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
    )
    if state.ema is not None:
        ema_(state.ema.buffer, state.params.buffer, config.ema_rate)
