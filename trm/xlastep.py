"""A training step on PyTorch/XLA. The state stays on XLA's device between steps, and two graphs are compiled in all.

XLA compiles a graph for each set of constants. So everything that changes from step to step enters as a tensor: the
batch, the exploration and the rates, all computed on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import torch
import torch_xla
import torch_xla.debug.metrics as counters
import torch_xla.runtime
from torch import Tensor

from trm.act import Carry, exploration
from trm.config import TrainConfig
from trm.data.dataset import Batch
from trm.losses import loss_and_metrics
from trm.optim import ema_, lr_scale, sign_sgd_
from trm.train import TrainState


class XlaStep:
    """`EagerStep` on XLA's device; equal to it but for rounding."""

    parts = 1
    groups = ""
    atomic = False

    def __init__(self) -> None:
        self.name = f"xla-{torch_xla.runtime.device_type().lower()}"
        self.timings: Mapping[str, float] = {}
        self._source: TrainState | None = None
        self._there: TrainState | None = None

    @property
    def compilations(self) -> int:
        """Graphs that this process has compiled."""
        found = counters.metric_data("CompileTime")
        return int(found[0]) if found else 0

    def __call__(self, state: TrainState, batch: Batch) -> Tensor:
        """Advance the state by one step; METRICS on the CPU, which waits for the device."""
        began = time.monotonic()
        first = self._there is None or self._source is not state
        there = self._there if self._there is not None and not first else self._move(state)
        min_halt = exploration(state.config.arch, state.config.seed, state.step, state.config.batch_size, "cpu")
        state.step += 1
        metrics = _step(there, _sent(batch), min_halt.to(there.device), _rates(state.config, state.step))
        torch_xla.sync()
        found: Tensor = metrics.cpu()
        state.fetch = partial(_fetch, state, there)
        if first:
            self.timings = {"compile": time.monotonic() - began}
        return found

    def _move(self, state: TrainState) -> TrainState:
        """A copy of the state on XLA's device, which the steps change from now on."""
        there = TrainState(state.config, state.sizes, "xla")
        with torch.no_grad():
            for name, value in state.tensors().items():
                there.tensors()[name].copy_(value)
        self._source, self._there = state, there
        return there


@torch.no_grad()
def _fetch(state: TrainState, there: TrainState) -> None:
    """Copy the state back to the CPU, from its own copy on XLA's device."""
    state.fetch = _nothing
    for mine, other in ((state.params, there.params), (state.m, there.m), (state.v, there.v)):
        mine.buffer.copy_(other.buffer.cpu())
    if state.ema is not None and there.ema is not None:
        state.ema.buffer.copy_(there.ema.buffer.cpu())
    if state.model.inner.puzzle_emb is not None:
        state.model.inner.puzzle_emb.weights.copy_(there.model.inner.puzzle_emb.weights.cpu())
    state.carry = Carry(**{name: value.cpu() for name, value in vars(there.carry).items()})


def _nothing() -> None:
    """The state is on the CPU already."""


def _sent(batch: Batch) -> Batch:
    return Batch(*(value.to("xla") for value in (batch.inputs, batch.labels, batch.puzzle_identifiers)))


def _rates(config: TrainConfig, step: int) -> Tensor:
    """float32 (4,) on XLA's device: rate of the puzzle table, decay factor, step size and bias correction of Adam."""
    scale = lr_scale(config, step)
    lr = config.lr * scale
    numbers = (
        config.puzzle_emb_lr * scale,
        1 - lr * config.weight_decay,
        lr / (1 - config.beta1**step),
        (1 - config.beta2**step) ** 0.5,
    )
    return torch.tensor(numbers, dtype=torch.float32).to("xla")


def _step(state: TrainState, batch: Batch, min_halt: Tensor, rates: Tensor) -> Tensor:
    """One step of the state on XLA's device, queued; its metrics."""
    config, model = state.config, state.model
    carry = model.refill(state.carry, batch)
    rows = model.inner.puzzle_rows(carry.puzzle_identifiers)
    if rows is not None:
        rows.requires_grad_()
    state.grads.buffer.zero_()
    state.carry, output = model(carry, rows, min_halt)
    loss, metrics = loss_and_metrics(output)
    torch.autograd.backward(loss / config.batch_size)
    if rows is not None and rows.grad is not None:
        table = model.inner.puzzle_emb.weights
        sign_sgd_(table, carry.puzzle_identifiers, rows.grad, rates[0], config.puzzle_emb_weight_decay)
    _adam_atan2_(state, rates)
    if state.ema is not None:
        ema_(state.ema.buffer, state.params.buffer, config.ema_rate)
    return metrics


@torch.no_grad()
def _adam_atan2_(state: TrainState, rates: Tensor) -> None:
    """As `trm.optim.adam_atan2_`, with the rates as tensors."""
    config, p, grad, m, v = state.config, state.params.buffer, state.grads.buffer, state.m.buffer, state.v.buffer
    p.mul_(rates[1])
    m.lerp_(grad, 1 - config.beta1)
    v.lerp_(grad.square(), 1 - config.beta2)
    p.sub_(torch.atan2(m, v.sqrt() / rates[3]) * rates[2])
