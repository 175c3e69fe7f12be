# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The sums of relay/torch/digest.py for all tensors in one launch.

Sums are integers modulo 2^64, so the order in which programs add to them does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Words that a program reads in one pass."""
_SLICES = 256
"""Programs that share a tensor."""


@triton.jit
def _shift_right(x, COUNT: tl.constexpr):
    """Logical shift of an int64."""
    return (x >> COUNT) & ((1 << (64 - COUNT)) - 1)


@triton.jit
def mix(x, A: tl.constexpr, B: tl.constexpr):
    """SplitMix64's finalizer, as in relay/torch/rng.py."""
    x = (x ^ _shift_right(x, 30)) * A
    x = (x ^ _shift_right(x, 27)) * B
    return x ^ _shift_right(x, 31)


@triton.jit
def _lanes(where_ptr, keys_ptr, total_ptr, GAMMA: tl.constexpr, A: tl.constexpr, B: tl.constexpr, LANES: tl.constexpr,
           SLICES: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """total[t, j] += sum of words[i] * (mix(keys[t, j] + (i + 1) * GAMMA) | 1); where[t]: address, count of words."""
    tensor = tl.program_id(0)
    words_ptr = tl.load(where_ptr + 2 * tensor).to(tl.pointer_type(tl.int64))
    count = tl.load(where_ptr + 2 * tensor + 1)
    blocks = ((count + BLOCK - 1) // BLOCK).to(tl.int32)
    for block in range(tl.program_id(1), blocks, SLICES):
        at = block * tl.full((), BLOCK, tl.int64) + tl.arange(0, BLOCK)
        words = tl.load(words_ptr + at, mask=at < count, other=0)
        steps = (at + 1) * GAMMA
        for lane in tl.static_range(LANES):
            weights = mix(tl.load(keys_ptr + tensor * LANES + lane) + steps, A, B) | 1
            tl.atomic_add(total_ptr + tensor * LANES + lane, tl.sum(words * weights))


def lanes(words: Sequence[Tensor], keys: Tensor, gamma: int, factors: tuple[int, int]) -> Tensor:
    """int64 (n_t,) words of each tensor t and (tensors, lanes) keys -> int64 (tensors, lanes) sums; does not wait.

    gamma and factors are those of relay/torch/rng.py, signed.
    """
    total = torch.zeros_like(keys)
    where = torch.tensor([[content.data_ptr(), len(content)] for content in words], dtype=torch.int64)
    where = where.to(keys.device, non_blocking=True)
    _lanes[(len(words), _SLICES)](where, keys, total, gamma, *factors, keys.shape[1], _SLICES, BLOCK)
    return total
