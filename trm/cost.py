"""The cost of a training step: arithmetic, and the memory that decides how the batch is split.

The prediction of memory counts what autograd keeps (or the fused step's tape), which is nearly all:
tests/trm/test_cost.py compares it with what torch keeps and with peaks measured on Hopper GPUs, and
benchmarks/cpu_memory.py with peaks of processes on a CPU. Sizes are in bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

from relay.torch.faults import TaskError
from relay.torch.memory import SLACK, Fit, Need, fewest_parts, gb, limit
from trm.config import Arch, TrainConfig
from trm.layers import inner_width
from trm.model import DTYPES, Sizes
from trm.presets import PRESETS
from trm.tasks import sizes_of

Method = Literal["eager", "compiled", "fused"]
"""How a step is computed: by autograd, by autograd of torch.compile's graph, by trm/kernels/fast_step.py."""

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
    needed = need(config, sizes, method, wide, kind)
    found = fewest_parts(needed, config.batch_size, free, processes, kind)
    if isinstance(found, Fit):
        return found
    smaller = _smaller(config, sizes, method, found, wide, processes, kind)
    raise TaskError(
        f"Training {config.task} needs {gb(needed.session(1) * SLACK)} of memory even if the batch of "
        f"{config.batch_size // processes} is split into single rows, and {gb(found)} are free{limit(kind)}. "
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
