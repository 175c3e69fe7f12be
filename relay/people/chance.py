"""Chance for planning: numbers that follow from a seed alone; secret to nobody and never used for names or keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

MASK = 2**64 - 1
STRIDE = 0x9E3779B97F4A7C15


class Chance:
    """SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): a mixed counter."""

    def __init__(self, seed: int) -> None:
        self._count = (seed * 0xD1342543DE82EF95 + STRIDE) & MASK

    def bits(self) -> int:
        """64 even bits."""
        self._count = mixed = (self._count + STRIDE) & MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return mixed ^ (mixed >> 31)

    def uniform(self) -> float:
        """At least 0, below 1."""
        return (self.bits() >> 11) * 2.0**-53

    def pick(self, options: Sequence[T]) -> T:
        """One of them; the bias of so few options among 2^64 is far below anything measured here."""
        return options[self.bits() % len(options)]

    def again(self, options: Sequence[T], count: int) -> tuple[T, ...]:
        """`count` of them with replacement: a bootstrap sample."""
        return tuple(self.pick(options) for _ in range(count))

    def beta(self, hits: int, misses: int) -> float:
        """Beta(hits, misses) for whole numbers above 0: the hits-th smallest of hits + misses - 1 uniform numbers."""
        return sorted(self.uniform() for _ in range(hits + misses - 1))[hits - 1]
