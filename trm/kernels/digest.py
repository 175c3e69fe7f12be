# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The sums of trm/digest.py in one launch a tensor. Knows no names, models or files.

Sums are integers modulo 2^64, so the order in which programs add to them does not matter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Words a program reads."""


@triton.jit
def _shift_right(x, COUNT: tl.constexpr):
    """Logical shift of an int64."""
    return (x >> COUNT) & ((1 << (64 - COUNT)) - 1)


@triton.jit
def _mix(x, A: tl.constexpr, B: tl.constexpr):
    """SplitMix64's finalizer, as in trm/rng.py."""
    x = (x ^ _shift_right(x, 30)) * A
    x = (x ^ _shift_right(x, 27)) * B
    return x ^ _shift_right(x, 31)


@triton.jit
def _lanes(words_ptr, keys_ptr, total_ptr, count, GAMMA: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
           LANES: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """total[j] += sum of words[i] * (mix(keys[j] + (i + 1) * GAMMA) | 1)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    words = tl.load(words_ptr + at, mask=at < count, other=0)
    steps = (at + 1) * GAMMA
    for lane in tl.static_range(LANES):
        weights = _mix(tl.load(keys_ptr + lane) + steps, A, B) | 1
        tl.atomic_add(total_ptr + lane, tl.sum(words * weights))


def lanes(words: Tensor, keys: Tensor, gamma: int, factors: tuple[int, int]) -> Tensor:
    """int64 (n,) words and (lanes,) keys -> int64 (lanes,) sums; gamma and factors are trm/rng.py's, signed."""
    total = torch.zeros_like(keys)
    if len(words):
        grid = (triton.cdiv(len(words), BLOCK),)
        _lanes[grid](words, keys, total, len(words), gamma, *factors, len(keys), BLOCK)
    return total
