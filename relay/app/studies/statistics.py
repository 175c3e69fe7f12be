"""Intervals of means, comparisons with a control, and Holm's correction. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

LEVEL = 0.05
"""Share of intervals that miss, and of false alarms."""
POWER = 0.8
"""Share of repetitions that would find a difference of the size that was seen."""
MOST_RUNS = 2**20
INTERVALS = 200
"""Of Simpson's rule; even."""


@dataclass(frozen=True)
class Mean:
    """The mean of some runs."""

    n: int
    value: float
    half: float | None
    """Half of the 95 % interval; None for one run."""


@dataclass(frozen=True)
class Comparison:
    """The difference to a control."""

    difference: float
    half: float
    """Half of the 95 % interval."""
    p: float
    """Two-sided, not adjusted."""
    paired: bool
    """Whether it is a mean of differences between runs of the same seed."""
    spread: float
    """Standard deviation of the differences, or of both sides together."""

    def needed(self, comparisons: int = 1) -> int | None:
        """Runs a side that would tell this difference apart with 80 % power; None for no difference, or over a million.

        The smallest n for which the difference is the t quantile of the level, plus that of the power, standard errors
        from zero. The level is shared by the comparisons of the table (Bonferroni), which is never less strict than
        Holm's correction: the answer is more than what was run, where that did not tell it apart. For large n and one
        comparison it is 16 (spread/difference)², half of it if paired.
        """
        if self.difference == 0:
            return None
        level = LEVEL / max(1, comparisons)

        def enough(n: int) -> bool:
            freedom, error = (n - 1.0, n**-0.5) if self.paired else (2.0 * n - 2, (2 / n) ** 0.5)
            reach = t_quantile(freedom, level) + t_quantile(freedom, 2 * (1 - POWER))
            return bool(abs(self.difference) >= reach * self.spread * error)

        if not enough(MOST_RUNS):
            return None
        return bisect_left(range(MOST_RUNS), True, lo=2, key=enough)


def mean_of(values: Sequence[float]) -> Mean:
    """The mean with its t-interval."""
    n = len(values)
    return Mean(n, fmean(values), t_quantile(n - 1) * _deviation(values) / math.sqrt(n) if n > 1 else None)


def compare(mine: Mapping[int, float], theirs: Mapping[int, float]) -> Comparison | None:
    """Values by seed: paired over at least two common seeds, otherwise Welch; None without two values a side."""
    common = sorted(mine.keys() & theirs.keys())
    paired = len(common) > 1
    if paired:
        pairs = [mine[seed] - theirs[seed] for seed in common]
        difference, spread, freedom = fmean(pairs), _deviation(pairs), len(common) - 1.0
        error = spread / math.sqrt(len(common))
    elif min(len(mine), len(theirs)) < 2:
        return None
    else:
        sides = [list(mine.values()), list(theirs.values())]
        squares = [_deviation(side) ** 2 for side in sides]
        parts = [square / len(side) for square, side in zip(squares, sides, strict=True)]
        below = sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
        difference, spread, error = fmean(sides[0]) - fmean(sides[1]), math.sqrt(fmean(squares)), math.sqrt(sum(parts))
        freedom = sum(parts) ** 2 / below if below else 1.0
    p = t_two_sided(difference / error, freedom) if error else float(difference == 0)
    return Comparison(difference, t_quantile(freedom) * error, p, paired, spread)


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given: their share of false alarms holds for all comparisons together."""
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda place: values[place])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = highest
    return adjusted


def _deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample."""
    middle = fmean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


@lru_cache(maxsize=1024)
def t_quantile(freedom: float, level: float = LEVEL) -> float:
    """What Student's t exceeds on either side with this probability: 12.71, 4.30, 3.18, 2.78 for 1 to 4 degrees."""
    low, high = 0.0, 1.0
    while t_two_sided(high, freedom) > level:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, freedom) > level else (low, middle)
    return high


def t_two_sided(t: float, freedom: float) -> float:
    """The probability of a value at least as far from zero.

    With t = √freedom · tan(angle) the density is cos(angle)^(freedom - 1), which Simpson's rule integrates well.
    """
    width = (math.pi / 2 - math.atan(abs(t) / math.sqrt(freedom))) / INTERVALS
    heights = [math.pow(math.sin(n * width), freedom - 1) for n in range(INTERVALS + 1)]  # from the far end of the tail
    tail = width / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2]))
    whole = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2)) * math.sqrt(math.pi) / 2
    return min(1.0, tail / whole)
