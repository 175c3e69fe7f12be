"""The cost of a training step: arithmetic, parameters, and the memory that decides how the batch is split. Bytes."""

from __future__ import annotations

import math

from lm.config import LmConfig
from lm.model import LOGITS_AT_ONCE, shapes
from relay.torch.faults import TaskError
from relay.torch.memory import SLACK, Fit, Need, fewest_parts, gb, limit

_FIXED = {"cpu": 60e6, "cuda": 120e6}
"""Workspaces of the matrix libraries, and compiled kernels, by kind of device."""
_KEPT, _PASSING = {"cpu": 19.0, "cuda": 18.5}, {"cpu": 20.0, "cuda": 5.0}
"""Values of the width that exist of a token, by kind of device. Kept by each block for its backward pass: inputs of
products and norms, four of attention, eight of the wide layer. Passing: answers, latent states, their gradients and a
block's backward pass; compiled code makes few of them (seven steps on an H200, docs/records/2026-11-30_lm_gpu)."""
_UNKEPT = 14
"""The same of a block that keeps nothing."""
_OF_LOGITS = {"cpu": 24, "cuda": 18}
"""Bytes of a logit: raw, bounded, their gradients, the softmax."""
_SNAPSHOTS = 3
"""Copies of the state on the device: one being made, one being uploaded, temporary memory of a copy."""
EVALUATED = {"cpu": 1 << 13, "cuda": 1 << 16}
"""Tokens that are evaluated at once, by kind of device."""


def parameter_count(config: LmConfig) -> int:
    """Trained numbers."""
    return sum(math.prod(shape) for shape in shapes(config.arch, config.data.vocab_size).values())


def token_flops(config: LmConfig) -> float:
    """Arithmetic of a token in training: 2 a multiply-add, backward twice the forward, no recomputation."""
    arch, refine = config.arch, config.refine
    blocks = 12 * arch.depth * arch.d**2
    stack = 6 * blocks + 6 * arch.depth * arch.d * arch.context  # causal attention is half of the square
    return float(refine.passes * stack + refine.steps * 6 * config.data.vocab_size * arch.d)


def step_flops(config: LmConfig) -> float:
    """Of a training step."""
    return token_flops(config) * config.tokens


def need(config: LmConfig, wide: bool = False, kind: str = "cuda") -> Need:
    """Memory of a step. `wide`: activations are float32 in place of bfloat16. kind: of the device.

    A GPU has deterministic attention without a whole matrix of scores only for bfloat16.
    """
    arch, refine = config.arch, config.refine
    item = 2 if arch.forward_dtype == "bfloat16" and not wide else 4
    passes = (refine.loops + 1) * (refine.steps if refine.gradient == "through" else 1)
    count = parameter_count(config)
    adamw = 2 * math.prod(shapes(arch, config.data.vocab_size)["embed"])
    state = 4 * (2 * count + adamw)
    casts = item * count * passes if item == 2 else 0
    logits = min(LOGITS_AT_ONCE, config.tokens * config.data.vocab_size) * _OF_LOGITS[kind]
    kept = arch.d * item * _KEPT[kind] + (8 * arch.h * arch.context if kind == "cuda" and item == 4 else 0)
    a_token = passes * arch.depth * kept + arch.d * item * _PASSING[kind]
    evaluated = EVALUATED[kind] * arch.d * item * _UNKEPT + logits
    return Need(
        fixed=_FIXED[kind] + state + 8 * count + casts + logits,
        per_row=a_token * arch.context,
        evaluated=evaluated,
        beside=_SNAPSHOTS * state,
    )


def fit(config: LmConfig, free: int | None, wide: bool, processes: int, kind: str) -> Fit:
    """The fewest parts that fit into `free` bytes (None: one part). Raises TaskError if even single rows do not."""
    needed = need(config, wide, kind)
    found = fewest_parts(needed, config.batch_size, free, processes, kind)
    if isinstance(found, Fit):
        return found
    raise TaskError(
        f"Training {config.task} needs {gb(needed.session(1) * SLACK)} of memory even if the batch is split into "
        f"single rows, and {gb(found)} are free{limit(kind)}. Set a smaller arch.context, arch.depth or arch.width, "
        "free some memory, or use a larger machine."
    )
