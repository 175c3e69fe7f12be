"""A training step of fused kernels, captured in one CUDA graph.

The same function as trm/train.py's EagerStep up to rounding, on the same TrainState. Between steps the carry lives in
the step's own buffers, and `state.carry` names them.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace

import torch
from torch import Tensor

from relay.torch.steps import Sharing, groups, own_slices
from trm.act import Carry, exploration, seated
from trm.config import Arch
from trm.data.dataset import IGNORE, Batch
from trm.kernels.components import Components, fused_components
from trm.kernels.layout import PAD, Anew, Tables
from trm.kernels.network import AttentionMixer, FastBlock, Heads, Recursion, TokenMixer
from trm.model import DTYPES, Sizes
from trm.optim import lr_scale, sign_sgd_
from trm.train import TrainState


def unavailable(device: torch.device | str, arch: Arch, sizes: Sizes) -> str | None:
    """Why the fused step cannot run here, as half a sentence; None if it can."""
    device = torch.device(device)
    if device.type != "cuda":
        return "it needs a GPU"
    if torch.cuda.get_device_capability(device) < (9, 0):
        return f"{torch.cuda.get_device_name(device)} is older than Hopper, whose bulk copies the kernels use"
    if importlib.util.find_spec("triton") is None or importlib.util.find_spec("triton.tools.tensor_descriptor") is None:
        return "it needs triton 3.4 or newer"
    if not hasattr(torch.ops.aten.addmm, "dtype_out"):
        return f"torch {torch.__version__} cannot sum bfloat16 products into float32 (2.8 can)"
    if arch.forward_dtype != "bfloat16" or arch.pos_encodings == "learned":
        return "it takes bfloat16 and no learned positions"
    if arch.hidden_size & (arch.hidden_size - 1) or arch.hidden_size < 128:
        return "its kernels take hidden sizes that are powers of two from 128"
    if arch.mlp_t and sizes.seq_len + arch.prefix_len > PAD:
        return f"its token mixer takes sequences up to {PAD}"
    return None


def available(device: torch.device | str, arch: Arch, sizes: Sizes) -> bool:
    """Whether the fused step can run here."""
    return unavailable(device, arch, sizes) is None


@contextmanager
def _as_captured() -> Iterator[None]:
    """Let torch record its plain kernels: this step is deterministic by construction, and the slower variants that
    torch chooses in its deterministic mode are not all made for graphs."""
    wanted = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(wanted)


class FastStep:
    """A Step (trm/train.py). Buffers and graph are built at the first call and again when another state comes."""

    atomic = False

    def __init__(
        self, kernels: Components | None = None, graph: bool = True, parts: int = 1, peers: Sharing | None = None
    ) -> None:
        """parts: micro-batches of a step; it may be set until the first call. peers: who shares the batch."""
        self.peers = peers
        self._kernels, self._graph = kernels or fused_components(), graph
        self._bound: BoundStep | None = None
        self.name, self.parts = f"{self._kernels.name}{'-graph' if graph else ''}", parts
        self.timings: Mapping[str, float] = {}

    @property
    def groups(self) -> str:
        """How the batch is divided."""
        return groups(self.parts, self.peers)

    def __call__(self, state: TrainState, batch: Batch) -> Tensor:
        """Advance the state by one step in place; the step's METRICS, float64 (7,), on the device."""
        if self._bound is None or self._bound.state is not state:
            self._bound = None
            self._bound = BoundStep(state, self._kernels, self._graph, self.parts, self.peers)
            self.timings = self._bound.timings
        return self._bound(batch)


class BoundStep:
    """The step of one TrainState: packed weights, buffers and the graph that reads and writes them."""

    def __init__(self, state: TrainState, kernels: Components, graph: bool, parts: int, peers: Sharing | None) -> None:
        self.state, self.kernels, self.peers = state, kernels, peers
        config, device = state.config, state.device
        self.rows = own_slices(config.batch_size, parts, peers)
        arch, dtype = config.arch, DTYPES[config.arch.forward_dtype]
        params, grads = state.params.views, state.grads.views
        self.recursion = Recursion(arch, [self._block(index) for index in range(arch.L_layers)], kernels.embedding)
        self.heads = Heads(params, grads, dtype)
        self.carry = Carry(**{f.name: getattr(state.carry, f.name).clone() for f in fields(Carry)})
        self.batch = Batch(self.carry.inputs.clone(), self.carry.labels.clone(), self.carry.puzzle_identifiers.clone())
        self.counter = torch.zeros((), dtype=torch.int64, device=device)
        self.rates = torch.zeros(3, device=device)
        self.table_lr = torch.zeros((), dtype=torch.float64, device=device)
        self.metrics = torch.zeros(7, dtype=torch.float64, device=device)
        self.total = torch.zeros_like(state.grads.buffer) if parts > 1 else None
        self.timings: dict[str, float] = {}
        self.table_grad = torch.zeros(config.batch_size, arch.puzzle_emb_ndim, device=device)
        self.graphs = self._capture() if graph else ()

    def _block(self, index: int) -> FastBlock:
        """Layer `index` over the state's parameters."""
        state, config = self.state, self.state.config
        arch, inner, prefix = config.arch, state.model.inner, f"inner.L_level.layers.{index}."
        common = (prefix, state.params.views, state.grads.views, self.kernels, inner.dtype, arch.rms_norm_eps)
        if arch.mlp_t:
            return FastBlock(*common, TokenMixer(*common, min(part.stop - part.start for part in self.rows)))
        head = arch.hidden_size // arch.num_heads
        still = (
            torch.ones(inner.length, head, device=state.device),
            torch.zeros(inner.length, head, device=state.device),
        )
        return FastBlock(
            *common, AttentionMixer(*common, arch.num_heads, (inner.cos, inner.sin) if inner.rotary else still)
        )

    def __call__(self, batch: Batch) -> Tensor:
        """One step; its METRICS."""
        self._load(batch)
        phases = [graph.replay for graph in self.graphs] or self._phases()
        phases[0]()
        if self.peers is not None:
            carry = [getattr(self.carry, f.name) for f in fields(Carry)]
            self.peers.exchange([self.state.grads.buffer, self.metrics], [*carry, self.table_grad])
        for phase in phases[1:]:
            phase()
        self.state.step += 1
        return self.metrics.clone()

    def _load(self, batch: Batch) -> None:
        """Put the values that change with each step where the kernels read them."""
        state, config = self.state, self.state.config
        for name in ("inputs", "labels", "puzzle_identifiers"):
            getattr(self.batch, name).copy_(getattr(batch, name))
        if state.carry is not self.carry:
            for f in fields(Carry):
                getattr(self.carry, f.name).copy_(getattr(state.carry, f.name))
            state.carry = self.carry
        self.counter.fill_(state.step)
        scale, t = lr_scale(config, state.step + 1), state.step + 1
        lr = config.lr * scale
        self.rates[0].fill_(1 - lr * config.weight_decay)
        self.rates[1].fill_(lr / (1 - config.beta1**t))
        self.rates[2].fill_(1 / math.sqrt(1 - config.beta2**t))
        self.table_lr.fill_(config.puzzle_emb_lr * scale)

    def _phases(self) -> list[Callable[[], None]]:
        """The step; two phases if processes exchange gradients before the update."""
        return [self._run] if self.peers is None else [self._gradients, self._update]

    def _watched(self) -> str:
        """Which threads are checked while a graph is recorded: NCCL's own thread watches the other GPUs then."""
        return "global" if self.peers is None else "thread_local"

    def _capture(self) -> list[torch.cuda.CUDAGraph]:
        """Compile and warm up on the real buffers, put the state back, and record the step's phases."""
        began = time.perf_counter()
        live = [*self.state.tensors().values(), *(getattr(self.carry, f.name) for f in fields(Carry))]
        before = [tensor.clone() for tensor in live]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), _as_captured():
            for _ in range(2):
                self._run()
        torch.cuda.current_stream().wait_stream(stream)
        for tensor, value in zip(live, before, strict=True):
            tensor.copy_(value)
        del before
        torch.cuda.synchronize()
        compiled = time.perf_counter()
        torch.cuda.empty_cache()
        graphs = []
        for phase in self._phases():
            graphs.append(torch.cuda.CUDAGraph())
            with _as_captured(), torch.cuda.graph(graphs[-1], capture_error_mode=self._watched()):
                phase()
        self.timings = {"compile": compiled - began, "capture": time.perf_counter() - compiled}
        return graphs

    def _run(self) -> None:
        """The whole step, in the order of reference/trm.md 5.4, on this object's buffers."""
        self._gradients()
        self._update()

    @torch.no_grad()
    def _gradients(self) -> None:
        """All but the update, for this process's rows."""
        state, config = self.state, self.state.config
        self.heads.pack()
        carry = seated(self.carry, self.batch)
        min_halt = exploration(config.arch, config.seed, self.counter, config.batch_size, state.device)
        self.metrics.zero_()
        if self.total is not None:
            self.total.zero_()
        for rows in self.rows:
            self._part(carry.part(rows), min_halt[rows], rows)
        if self.total is not None:
            state.grads.buffer.copy_(self.total)

    def _part(self, carry: Carry, min_halt: Tensor, rows: slice) -> None:
        """Some rows with their batch, whose halted states need a reset: their new carry, metrics and gradients."""
        state, inner = self.state, self.state.model.inner
        for block in self.recursion.blocks:
            block.pack()
            block.start()
        puzzles = inner.puzzle_emb.weights if state.config.arch.puzzle_emb_ndim else None
        tables = Tables(inner.embed_tokens.embedding_weight, carry.inputs, puzzles, carry.puzzle_identifiers)
        tape = self.recursion.forward(carry.z_H, carry.z_L, tables, Anew(carry.halted, inner.H_init, inner.L_init))
        logits = self.heads.forward(carry.z_H)
        prefix, vocab = state.config.arch.prefix_len, state.sizes.vocab_size
        grad, losses = self.kernels.loss.loss_and_grad(
            logits, carry.labels, prefix, vocab, IGNORE, state.config.batch_size
        )
        grads = self.recursion.backward(tape, self.heads.backward(carry.z_H, grad))
        for block in self.recursion.blocks:
            block.finish()
        self._embedding_grads(carry, grads, rows)
        if self.total is not None:
            self.total.add_(state.grads.buffer)
        self._halt(carry, logits[:, 0, vocab].float(), losses, min_halt, rows)

    def _halt(self, carry: Carry, q: Tensor, losses: Tensor, min_halt: Tensor, rows: slice) -> None:
        """Decide who halts, write the new carry but for z_H and z_L, which are there already, and add the metrics.

        losses: lm loss, halting loss, right, scored.
        """
        steps = carry.steps + 1
        halted = self.state.model.decide(steps, q[:, None], min_halt)
        new = replace(carry, steps=steps, halted=halted)
        for name in ("steps", "halted", "inputs", "labels", "puzzle_identifiers"):
            getattr(self.carry, name)[rows].copy_(getattr(new, name))
        lm, q_loss, right, scored = losses.double().unbind(1)
        exact = right == scored
        sums = torch.stack((
            torch.ones_like(lm), right / scored.clamp(min=1), exact.double(), ((q >= 0) == exact).double(),
            steps.double(),
        ))  # fmt: skip
        counted = halted & (scored > 0)
        self.metrics.add_(torch.cat(((sums * counted).sum(-1), torch.stack((lm.sum(), q_loss.sum())))))

    def _embedding_grads(self, carry: Carry, grads: Tensor, rows: slice) -> None:
        """Write the gradients of the token table and of the puzzle rows. grads: (L_cycles, B, L, D)."""
        state, arch = self.state, self.state.config.arch
        scale = math.sqrt(arch.hidden_size)
        tokens = self.kernels.embedding.token_grad(carry.inputs, grads, arch.prefix_len, state.sizes.vocab_size)
        state.grads.views["inner.embed_tokens.embedding_weight"].copy_(tokens * scale)
        if arch.puzzle_emb_ndim:
            slots = -(-arch.puzzle_emb_ndim // arch.hidden_size)
            prefix = grads[:, :, :slots].float().sum(0).flatten(1)[:, : arch.puzzle_emb_ndim]
            self.table_grad[rows] = prefix * scale

    @torch.no_grad()
    def _update(self) -> None:
        """Puzzle table, then parameters and EMA."""
        state, config = self.state, self.state.config
        if config.arch.puzzle_emb_ndim:
            table, identifiers = state.model.inner.puzzle_emb.weights, self.carry.puzzle_identifiers
            sign = sign_sgd_(table, identifiers, self.table_grad, self.table_lr, config.puzzle_emb_weight_decay)
            if state.journal is not None:
                state.journal.note(identifiers, sign)
        ema = None if state.ema is None else state.ema.buffer
        self.kernels.optimizer.adam_atan2_ema_(
            state.params.buffer, state.grads.buffer, state.m.buffer, state.v.buffer, ema, self.rates,
            (config.beta1, config.beta2), config.ema_rate,
        )  # fmt: skip
