"""Random numbers as a pure function of (seed, step, stream, position), equal on every device.

SplitMix64 (Steele, Lea, Flood 2014) read at random places: the state of element i is key + (i + 1) * GAMMA, and the
key is a hash of (seed, stream, step). Integer tensor arithmetic only, so a step may be a device tensor and CUDA graphs
can capture it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

GAMMA = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)
_MASK = 2**64 - 1

Device = torch.device | str


class Stream(IntEnum):
    """The use of the numbers. Values are part of every run: never renumber, only append."""

    INIT = 1
    """Initial weights; the step is the parameter's index."""
    EPOCH_ORDER = 2
    """Order of the rows; the step is the epoch."""
    EXPLORE_COIN = 3
    """Whether a slot must explore before it may halt."""
    EXPLORE_STEPS = 4
    """For how many steps it must explore."""
    DIGITS = 5
    """Augmentation: relabelling of digits."""
    TRANSPOSE = 6
    ROWS = 7
    """Augmentation: rows and bands, in one permutation call each."""
    COLUMNS = 8
    BUILD = 9
    """Choice of rows and splits when building data; the step counts draws."""
    VARIANT = 10
    """Choice among a row's stored variants."""
    DIHEDRAL = 11
    """Augmentation: turns and reflections of a square."""
    PAIRS = 12
    """Order of the examples that share a row's variant; the step is the epoch."""
    OFFSET = 13
    """Where an epoch's windows of a long text begin; the step is the epoch."""
    TEXT = 14
    """Generated text; the step counts blocks of documents."""
    SAMPLE = 15
    """Tokens drawn from a model; the step is the position."""


def _signed(value: int) -> int:
    """The int64 with the low 64 bits of value."""
    value &= _MASK
    return value - 2**64 if value >> 63 else value


def _mix_int(x: int) -> int:
    """SplitMix64's finalizer on a Python integer in [0, 2^64)."""
    x = (x ^ (x >> _SHIFTS[0])) * _FACTORS[0] & _MASK
    x = (x ^ (x >> _SHIFTS[1])) * _FACTORS[1] & _MASK
    return x ^ (x >> _SHIFTS[2])


def _shift_right(x: Tensor, count: int) -> Tensor:
    """Logical shift: this shift copies the sign on every device (`>>` does not on XLA), and the mask removes it."""
    return torch.bitwise_right_shift(x, count) & ((1 << (64 - count)) - 1)


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finalizer on int64; products wrap modulo 2^64."""
    x = (x ^ _shift_right(x, _SHIFTS[0])) * _signed(_FACTORS[0])
    x = (x ^ _shift_right(x, _SHIFTS[1])) * _signed(_FACTORS[1])
    return x ^ _shift_right(x, _SHIFTS[2])


def key(seed: int, step: int, stream: int) -> int:
    """A hash of the three, as the integer of an int64."""
    return _signed(_mix_int((_base(seed, stream) + step * GAMMA) & _MASK))


def constants() -> tuple[int, tuple[int, int]]:
    """GAMMA and the finalizer's factors as int64, for kernels that compute the same bits."""
    return _signed(GAMMA), (_signed(_FACTORS[0]), _signed(_FACTORS[1]))


def _base(seed: int, stream: int) -> int:
    return _mix_int((_mix_int(seed & _MASK) + stream * GAMMA) & _MASK)


def _key(seed: int, step: int | Tensor, stream: int, device: Device) -> Tensor:
    """0-d int64 on the device: a hash of the three."""
    if not isinstance(step, Tensor):
        return torch.full((), key(seed, step, stream), dtype=torch.int64, device=device)
    return _mix(step.to(device=device, dtype=torch.int64) * _signed(GAMMA) + _signed(_base(seed, stream)))


def bits(
    seed: int, step: int | Tensor, stream: int, shape: Sequence[int], device: Device = "cpu", start: int = 0
) -> Tensor:
    """64 random bits an element, as int64 of the given shape; `start` is the position of the first element.

    The step is an integer or a 0-d int64 tensor; both give the same numbers.
    """
    return bits_of(_key(seed, step, stream, device), math.prod(shape), start).reshape(tuple(shape))


def bits_of(keys: Tensor, count: int, start: int = 0) -> Tensor:
    """The same from `key`s: int64 (count,) of a 0-d key, (n, count) of (n, 1)."""
    position = torch.arange(start + 1, start + count + 1, dtype=torch.int64, device=keys.device)
    return _mix(keys + position * _signed(GAMMA))


def uniform(
    seed: int, step: int | Tensor, stream: int, shape: Sequence[int], device: Device = "cpu", start: int = 0
) -> Tensor:
    """float32 in [0, 1), multiples of 2^-24: the highest 24 bits of each element."""
    return _shift_right(bits(seed, step, stream, shape, device, start), 40).to(torch.float32) * 2.0**-24


def normal(seed: int, step: int, stream: int, shape: Sequence[int], std: float = 1.0) -> Tensor:
    """float32 on the CPU: normal, computed in float64 and rounded once, so that every machine gets the same numbers."""
    middle = (uniform(seed, step, stream, shape).double() + 2.0**-25) * 2 - 1
    return (torch.erfinv(middle) * (math.sqrt(2.0) * std)).float()


def integers(
    seed: int,
    step: int | Tensor,
    stream: int,
    shape: Sequence[int],
    low: int,
    high: int,
    device: Device = "cpu",
) -> Tensor:
    """int64 in [low, high), by multiplying the highest 32 bits; the bias is below (high - low) / 2^32.

    Raises ValueError unless 0 < high - low <= 2^31.
    """
    span = high - low
    if not 0 < span <= 2**31:
        raise ValueError(f"integers from {low} to below {high}: the range must hold 1 to 2^31 values")
    return low + torch.bitwise_right_shift(_shift_right(bits(seed, step, stream, shape, device), 32) * span, 32)


def below(seed: int, step: int | Tensor, stream: int, spans: Tensor) -> Tensor:
    """int64, one for each span (int64, 1-d, 1 to 2^31): in [0, span), as `integers` draws it."""
    drawn = _shift_right(bits(seed, step, stream, spans.shape, spans.device), 32)
    return torch.bitwise_right_shift(drawn * spans, 32)


def permutations(
    seed: int, step: int | Tensor, stream: int, rows: int, n: int, device: Device = "cpu", start: int = 0
) -> Tensor:
    """int64 (rows, n): each row an independent permutation of 0..n-1.

    The column replaces the lowest bits of the sorted keys, so keys never tie and any sort gives the same answer.
    """
    width = (n - 1).bit_length()
    keys = bits(seed, step, stream, (rows, n), device, start)
    column = torch.arange(n, dtype=torch.int64, device=device)
    return ((torch.bitwise_right_shift(keys, width) << width) | column).argsort(dim=1)
