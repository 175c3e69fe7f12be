"""The cost of a training step: arithmetic, and the device memory that decides how the batch is split.

The prediction of memory counts what autograd keeps (or the fused step's tape), which is nearly all:
tests/trm/test_cost.py compares it with what torch keeps and with peaks measured on Hopper GPUs. Sizes are in bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import torch

from trm.config import Arch, TrainConfig
from trm.layers import inner_width
from trm.model import DTYPES, Sizes
from trm.presets import TaskError

Method = Literal["eager", "compiled", "fused"]
"""How a step is computed: by autograd, by autograd of torch.compile's graph, by trm/kernels/fast_step.py."""

CAP = "TRM_MEMORY_GB"
"""Environment variable: use at most this many gigabytes (10^9 bytes) of the device's memory."""
SLACK = 1.05
"""Free memory must exceed the prediction by this factor: an allocator's holes, and uncounted tensors."""
_FIXED = 150e6
"""Workspaces of the matrix libraries, kernels' own buffers."""
EVALUATED = 1024
"""Rows that trm/workload.py evaluates at once on a GPU."""
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
    beside: float
    """Memory of a session in addition to the step: snapshots, and evaluation if a graph keeps the step's memory."""

    def peak(self, rows: int) -> int:
        """Peak of the step, with `rows` rows at once."""
        return int(self.fixed + self.per_row * rows)

    def session(self, rows: int) -> int:
        """Of a session."""
        return int(self.peak(rows) + self.beside)


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
    arch = config.arch
    length, width = _length(arch, sizes), arch.hidden_size
    tokens = config.batch_size * length
    attention = tokens * (8 * width**2 + 4 * length * width)
    mixer = 6 * tokens * width * inner_width(length, arch.expansion) if arch.mlp_t else attention
    block = mixer + 6 * tokens * width * inner_width(width, arch.expansion)
    calls = (arch.H_cycles + 2) * (arch.L_cycles + 1)
    return float(block * arch.L_layers * calls)


def need(config: TrainConfig, sizes: Sizes, method: Method, wide: bool = False) -> Need:
    """Memory of a step. `wide`: bfloat16 values are multiplied in float32 (trm/layers.py)."""
    arch = config.arch
    kept = {"eager": _eager_block, "compiled": _compiled_block, "fused": _fused_block}[method](arch, sizes, wide)
    states = kept * arch.L_layers * (arch.L_cycles + 1)
    latent = _latent(arch, sizes)
    heads = 6 * 8 * sizes.seq_len * sizes.vocab_size
    own = 0.5 * kept + 4 * latent
    if method == "fused":
        own += (arch.L_cycles - 2) * latent  # the carry holds two that the tape keeps
    copies = 6 if config.ema else 5
    weights = 4 * copies * network_parameters(arch, sizes) + 4 * sizes.num_identifiers * arch.puzzle_emb_ndim
    latents = latent * config.batch_size
    beside = _SNAPSHOTS * (weights + 2 * latents) + (EVALUATED * _unkept_block(arch, sizes) if method == "fused" else 0)
    return Need(_FIXED + weights + _CARRIES[method] * latents, states + heads + own, beside)


def fit(
    config: TrainConfig, sizes: Sizes, method: Method, free: int | None, wide: bool = False, processes: int = 1
) -> Fit:
    """The fewest parts that fit into `free` bytes (None: one part). Raises TaskError if even single rows do not.

    processes: number of processes that share the batch; each takes its rows in the parts found.
    """
    needed, batch = need(config, sizes, method, wide), config.batch_size // processes
    for parts in range(1, batch + 1):
        rows = -(-batch // parts)
        if free is None or needed.session(rows) * SLACK <= free:
            return Fit(batch, parts, needed.session(batch), needed.session(rows), needed.peak(rows), free)
    raise TaskError(
        f"Training {config.task} needs {_gb(needed.session(1) * SLACK)} of device memory even if the batch of {batch} "
        f"is split into single rows, and {_gb(free or 0)} are free. Free some memory, choose a larger device, or take "
        "a smaller task."
    )


def free_bytes(device: torch.device) -> int | None:
    """Device memory that this process may still use, within TRM_MEMORY_GB, which is enforced; None if unknown.

    Raises TaskError if TRM_MEMORY_GB is not a positive number.
    """
    cap = _cap()
    if device.type != "cuda":
        return cap
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
