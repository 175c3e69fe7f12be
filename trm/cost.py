"""The cost of a training step: arithmetic, and the memory that decides how the batch is split.

The prediction of memory counts what autograd keeps (or the fused step's tape), which is nearly all:
tests/trm/test_cost.py compares it with what torch keeps and with peaks measured on Hopper GPUs, and
benchmarks/cpu_memory.py with peaks of processes on a CPU. Sizes are in bytes.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal

import torch

from relay.core.resources import free_memory
from trm.config import Arch, TrainConfig
from trm.layers import inner_width
from trm.model import DTYPES, Sizes
from trm.presets import PRESETS, TaskError
from trm.tasks import sizes_of

Method = Literal["eager", "compiled", "fused"]
"""How a step is computed: by autograd, by autograd of torch.compile's graph, by trm/kernels/fast_step.py."""

CAP = "TRM_MEMORY_GB"
"""Environment variable: use at most this many gigabytes (10^9 bytes) of the device's (or this machine's) memory."""
SLACK = 1.05
"""Free memory must exceed the prediction by this factor: an allocator's holes, and uncounted tensors."""
_FIXED = {"cpu": 60e6, "cuda": 150e6}
"""Workspaces of the matrix libraries, kernels' own buffers, by kind of device."""
EVALUATED = {"cpu": 128, "cuda": 1024}
"""Rows that trm/workload.py evaluates at once, by kind of device."""
_OWN = {"cpu": 1.4, "cuda": 0.5}
"""Memory of the backward pass through a block, as a share of that block's kept memory, as measured."""
_SNAPSHOTS = 3
"""Copies of the state on the device: one being made, one being uploaded, and temporary memory of a copy."""
_CARRIES: dict[Method, int] = {"eager": 6, "compiled": 6, "fused": 4}
"""Latent states of the whole batch that exist at once: two each of the old, the refilled and the new carry. In the
fused step: the state's until the end of the first step, and the step's own, which the last cycle overwrites."""


@dataclass(frozen=True)
class Need:
    """Peak memory as a function of how many rows go through the network at once."""

    fixed: float
    """Weights, optimizer, and tensors for the whole batch, independent of the split."""
    per_row: float
    """Activations kept for the backward pass, and its own."""
    evaluated: float
    """Activations of an evaluation, which runs between two steps."""
    beside: float
    """Memory of a session in addition to both: snapshots, and evaluation if a graph keeps the step's memory."""

    def peak(self, rows: int) -> int:
        """Peak of the step, with `rows` rows at once."""
        return int(self.fixed + self.per_row * rows)

    def session(self, rows: int) -> int:
        """Of a session."""
        return int(self.fixed + max(self.per_row * rows, self.evaluated) + self.beside)


@dataclass(frozen=True)
class Fit:
    """A batch and the number of parts in which to compute it."""

    batch: int
    parts: int
    unsplit: int
    """Memory of a session in one part."""
    needed: int
    """Memory of a session in these parts."""
    peak: int
    """The step's share of `needed`."""
    free: int | None
    """None if unknown."""

    @property
    def remark(self) -> str | None:
        """One line to print, None without a split."""
        if self.parts == 1 or self.free is None:
            return None
        rows = -(-self.batch // self.parts)
        most = "" if self.batch % self.parts == 0 else "at most "
        return (
            f"MEMORY: the batch of {self.batch} needs {_gb(self.unsplit)} and {_gb(self.free)} are free, so each step "
            f"takes it in {self.parts} parts of {most}{rows} ({_gb(self.needed)}). The function is the same; next to "
            "sessions with another split the link is not bit-exact."
        )


def step_flops(config: TrainConfig, sizes: Sizes) -> float:
    """Arithmetic of a step (reference/trm.md 16.1): 2 a multiply-add, backward twice the forward, no recomputation."""
    return config.batch_size * (config.arch.H_cycles + 2) * _cycle_flops(config.arch, sizes)


def forward_flops(arch: Arch, sizes: Sizes) -> float:
    """Arithmetic of one supervision step of one row, forward only."""
    return arch.H_cycles * _cycle_flops(arch, sizes)


def _cycle_flops(arch: Arch, sizes: Sizes) -> float:
    """Of one H cycle of one row, forward."""
    length, width = _length(arch, sizes), arch.hidden_size
    attention = length * (8 * width**2 + 4 * length * width)
    mixer = 6 * length * width * inner_width(length, arch.expansion) if arch.mlp_t else attention
    block = mixer + 6 * length * width * inner_width(width, arch.expansion)
    return float(block * arch.L_layers * (arch.L_cycles + 1))


def need(config: TrainConfig, sizes: Sizes, method: Method, wide: bool = False, kind: str = "cuda") -> Need:
    """Memory of a step. `wide`: bfloat16 values are multiplied in float32 (trm/layers.py). kind: of the device."""
    arch = config.arch
    kept = {"eager": _eager_block, "compiled": _compiled_block, "fused": _fused_block}[method](arch, sizes, wide)
    states = kept * arch.L_layers * (arch.L_cycles + 1)
    latent = _latent(arch, sizes)
    heads = 6 * 8 * sizes.seq_len * sizes.vocab_size
    own = _OWN[kind] * kept + 4 * latent
    if method == "fused":
        own += (arch.L_cycles - 2) * latent  # the carry holds two that the tape keeps
    copies = 6 if config.ema else 5
    weights = 4 * copies * network_parameters(arch, sizes) + 4 * sizes.num_identifiers * arch.puzzle_emb_ndim
    latents = latent * config.batch_size
    evaluated = EVALUATED[kind] * _unkept_block(arch, sizes)
    at_once = evaluated if method == "fused" else 0
    return Need(
        fixed=_FIXED[kind] + weights + (_casts(arch, sizes) if kind == "cpu" else 0) + _CARRIES[method] * latents,
        per_row=states + heads + own,
        evaluated=evaluated - at_once,
        beside=_SNAPSHOTS * (weights + 2 * latents) + at_once,
    )


def fit(
    config: TrainConfig,
    sizes: Sizes,
    method: Method,
    free: int | None,
    wide: bool = False,
    processes: int = 1,
    kind: str = "cuda",
) -> Fit:
    """The fewest parts that fit into `free` bytes (None: one part). Raises TaskError if even single rows do not.

    processes: number of processes that share the batch; each takes its rows in the parts found. On a CPU they share
    the memory, too.
    """
    needed, batch = need(config, sizes, method, wide, kind), config.batch_size // processes
    share = None if free is None else free // processes if kind == "cpu" else free
    for parts in range(1, batch + 1):
        rows = -(-batch // parts)
        if share is None or needed.session(rows) * SLACK <= share:
            return Fit(batch, parts, needed.session(batch), needed.session(rows), needed.peak(rows), share)
    smaller = _smaller(config, sizes, method, share or 0, wide, processes, kind)
    raise TaskError(
        f"Training {config.task} needs {_gb(needed.session(1) * SLACK)} of memory even if the batch of {batch} is "
        f"split into single rows, and {_gb(share or 0)} are free{_limit(kind)}. "
        f"{smaller} Free some memory, or use a larger machine."
    )


def _smaller(
    config: TrainConfig, sizes: Sizes, method: Method, free: int, wide: bool, processes: int, kind: str
) -> str:
    """What would fit into `free` bytes: the largest batch of this network in single rows, otherwise presets."""

    def fits(other: TrainConfig, of: Sizes, rows: int) -> bool:
        return need(other, of, method, wide, kind).session(rows) * SLACK <= free

    batches = range(processes, config.batch_size, processes)
    count = bisect_left(batches, True, key=lambda batch: not fits(_with_batch(config, batch), sizes, 1))
    if count:
        return f"batch_size={batches[count - 1]} would fit."
    tasks = [name for name, preset in PRESETS.items() if fits(preset, sizes_of(preset), 1)]
    return f"{' or '.join(f'task={name}' for name in tasks)} would fit." if tasks else "No task would fit."


def _with_batch(config: TrainConfig, batch: int) -> TrainConfig:
    return config.model_copy(update={"batch_size": batch})


def _limit(kind: str) -> str:
    """The limit that keeps memory from a CPU's process, in brackets."""
    found = free_memory() if kind == "cpu" and _cap() is None else None
    return "" if found is None else f" ({found.limit})"


def free_bytes(device: torch.device) -> int | None:
    """Memory that this process may still use on the device, within TRM_MEMORY_GB; None if unknown.

    On a CPU limits of the process and its control groups count. On a GPU the cap is enforced. Raises TaskError if
    TRM_MEMORY_GB is not a positive number.
    """
    cap = _cap()
    if device.type != "cuda":
        found = free_memory()
        return min((count for count in (cap, found.count if found else None) if count is not None), default=None)
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device)
    if cap is None:
        return free
    index = torch.cuda.current_device() if device.index is None else device.index  # the next call takes no plain "cuda"
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap / total), index)
    return min(free, cap)


def _cap() -> int | None:
    text = os.environ.get(CAP)
    if not text:
        return None
    try:
        cap = float(text)
    except ValueError:
        cap = 0.0
    if not 0 < cap < 1e6:
        raise TaskError(f"{CAP}={text} is not a number of gigabytes. Set the limit, e.g. {CAP}=15, or unset it.")
    return int(cap * 1e9)


def _latent(arch: Arch, sizes: Sizes) -> int:
    """One latent state of one row: L x D values of the activations' type."""
    return _length(arch, sizes) * arch.hidden_size * _item(arch)


def _length(arch: Arch, sizes: Sizes) -> int:
    return sizes.seq_len + arch.prefix_len


def _item(arch: Arch) -> int:
    return DTYPES[arch.forward_dtype].itemsize


def parameter_count(arch: Arch, sizes: Sizes) -> int:
    """Trained numbers of the network and of its puzzle table."""
    return network_parameters(arch, sizes) + sizes.num_identifiers * arch.puzzle_emb_ndim


def network_parameters(arch: Arch, sizes: Sizes) -> int:
    """Trained numbers without the puzzle table."""
    width, length = arch.hidden_size, _length(arch, sizes)
    mixer = 3 * length * inner_width(length, arch.expansion) if arch.mlp_t else 4 * width * width
    block = mixer + 3 * width * inner_width(width, arch.expansion)
    return arch.L_layers * block + 2 * sizes.vocab_size * width + 2 * width + 2


def _casts(arch: Arch, sizes: Sizes) -> int:
    """Weights in the activations' type, which each call of a block keeps; on a GPU part of `_FIXED`."""
    calls = arch.L_cycles + 1 if arch.forward_dtype != "float32" else 0
    return _item(arch) * parameter_count(arch, sizes) * calls


def _products(arch: Arch, sizes: Sizes) -> tuple[int, int]:
    """Values a row has in the inner width of the token mixer (0 with attention) and of the channel MLP."""
    length, width = _length(arch, sizes), arch.hidden_size
    return width * inner_width(length, arch.expansion) if arch.mlp_t else 0, length * inner_width(width, arch.expansion)


def _eager_block(arch: Arch, sizes: Sizes, wide: bool) -> int:
    """Kept of a row by one block: inputs of products, gate and up, silu(gate), silu(gate) * up, the norms' inputs."""
    item, values = _item(arch), _length(arch, sizes) * arch.hidden_size
    of_product, of_norm = 4 if wide else item, max(4, item)
    token, channel = _products(arch, sizes)
    kept = 2 * (of_product + of_norm) * values + (3 * item + of_product) * (token + channel)
    if arch.mlp_t:
        return kept
    rotated = 2 if arch.pos_encodings == "rope" else 0
    return kept + (4 + rotated) * item * values + 4 * arch.num_heads * _length(arch, sizes)


def _unkept_block(arch: Arch, sizes: Sizes) -> int:
    """Largest memory of a row in a block that keeps nothing: gate and up, their activation, a few latent states."""
    return 4 * _item(arch) * max(_products(arch, sizes)) + 4 * _latent(arch, sizes)


def _compiled_block(arch: Arch, sizes: Sizes, wide: bool) -> int:
    """As kept by torch.compile: silu(gate) and the norms' float32 are computed again in the backward pass."""
    latent, item = _latent(arch, sizes), _item(arch)
    token, channel = _products(arch, sizes)
    return 3 * item * (token + channel) + (4 if arch.mlp_t else 9) * latent


def _fused_block(arch: Arch, sizes: Sizes, wide: bool) -> int:
    """trm/kernels/network.py's SavedBlock."""
    latent, item = _latent(arch, sizes), _item(arch)
    _, channel = _products(arch, sizes)
    return 3 * item * channel + (3 if arch.mlp_t else 7) * latent


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB"
