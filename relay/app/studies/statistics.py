"""Intervals of means, comparisons with a control, and Holm's correction. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

LEVEL = 0.05
"""Share of intervals that miss, and of false alarms."""
TINY = 1e-300


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
    n: int
    """Runs on each side, for Welch's test the smaller number."""
    spread: float
    """Standard deviation of the differences, or of both sides together."""

    @property
    def needed(self) -> int | None:
        """Runs a side that would tell this difference apart with 80 % power; None if there is no difference."""
        if self.difference == 0:
            return None
        return max(2, math.ceil((8 if self.paired else 16) * (self.spread / self.difference) ** 2))


def mean_of(values: Sequence[float]) -> Mean:
    """The mean with its t-interval."""
    n = len(values)
    return Mean(n, fmean(values), t_quantile(n - 1) * _deviation(values) / math.sqrt(n) if n > 1 else None)


def compare(mine: Mapping[int, float], theirs: Mapping[int, float]) -> Comparison | None:
    """Values by seed: paired over at least two common seeds, otherwise Welch; None without two values a side."""
    common = sorted(mine.keys() & theirs.keys())
    if len(common) > 1:
        differences = [mine[seed] - theirs[seed] for seed in common]
        spread = _deviation(differences)
        return _comparison(fmean(differences), spread / math.sqrt(len(common)), len(common) - 1, True, common, spread)
    if min(len(mine), len(theirs)) < 2:
        return None
    a, b = list(mine.values()), list(theirs.values())
    of_a, of_b = _deviation(a) ** 2 / len(a), _deviation(b) ** 2 / len(b)
    error, spread = math.sqrt(of_a + of_b), math.sqrt((_deviation(a) ** 2 + _deviation(b) ** 2) / 2)
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1)) if error else float(len(a) - 1)
    return _comparison(fmean(a) - fmean(b), error, freedom, False, min(a, b, key=len), spread)


def _comparison(
    difference: float, error: float, freedom: float, paired: bool, of: Sequence[object], spread: float
) -> Comparison:
    if error == 0:
        p = 1.0 if difference == 0 else 0.0
    else:
        p = t_two_sided(difference / error, freedom)
    return Comparison(difference, t_quantile(freedom) * error, p, paired, len(of), spread)


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
def t_quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's t: 12.71, 4.30, 3.18, 2.78 for 1 to 4 degrees of freedom."""
    low, high = 0.0, 13.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, freedom) > LEVEL else (low, middle)
    return high


def t_two_sided(t: float, freedom: float) -> float:
    """The probability of a value at least as far from zero."""
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function, by Lentz's method for its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    c, d, fraction = 1.0, 0.0, 1.0
    for n in range(1, 400):
        m, odd = divmod(n, 2)
        if odd:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _apart(1 + term * d), _apart(1 + term / c)
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front / (a * fraction)


def _apart(value: float) -> float:
    """A number that can be divided by."""
    return value if abs(value) > TINY else TINY
