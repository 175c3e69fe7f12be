"""The guide's four criteria for going on from its first phase to the second, and why they are not signs of quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lm.presets import LOSS

SHARE = (15.0, 25.0)
"""Per cent by which the last step's bits per byte lie below the first's."""
NORM = (0.5, 1.5)
SMOOTH = 1.05
"""A loss falls smoothly if no report is above the one before by more than this factor. The guide names no number."""


@dataclass(frozen=True)
class Criterion:
    """One of the guide's criteria."""

    name: str
    met: bool
    found: str
    """The value, in words. The share of refinement is left out: alone it shows nothing."""


def criteria(bpb: Sequence[float], reports: Sequence[Mapping[str, float]]) -> list[Criterion]:
    """bpb: after each refinement step. reports: metrics of training, oldest first; empty if there are none."""
    losses, norms = ([one[name] for one in reports if name in one] for name in (LOSS, "grad_norm"))
    if not losses or not norms:
        return []
    share = 100 * (bpb[0] - bpb[-1]) / bpb[0]
    low, high = SHARE
    place = "more" if share > high else "less" if share < low else "within"
    least, most = min(norms), max(norms)
    steady = NORM[0] <= least and most <= NORM[1]
    worst = max((after / before for before, after in pairwise(losses)), default=1.0)
    return [
        Criterion(
            "each step is better than the one before",
            all(after < before for before, after in pairwise(bpb)),
            ", ".join(f"{one:.4f}" for one in bpb) + " bpb",
        ),
        Criterion(f"refinement of {low:.0f} to {high:.0f} %", place == "within", place),
        Criterion(f"gradient norm of {NORM[0]} to {NORM[1]}", steady, f"{least:.3g} to {most:.3g}"),
        Criterion(
            "the loss falls smoothly",
            worst <= SMOOTH and losses[-1] < losses[0],
            f"{losses[0]:.3f} to {losses[-1]:.3f}, largest rise {max(0.0, 100 * (worst - 1)):.1f} %",
        ),
    ]


def lines(found: Sequence[Criterion]) -> list[str]:
    """As text; empty without criteria."""
    if not found:
        return []
    met = sum(one.met for one in found)
    verdict = "go on to phase 2" if met == len(found) else "not go on to phase 2"
    return [
        *(f"{'met' if one.met else 'NOT met'}: {one.name} ({one.found})" for one in found),
        f"{met} of the guide's {len(found)} criteria met: by them one would {verdict}. They compare this model with "
        "itself. Only the gain over a plain model of equal arithmetic shows what its steps are worth.",
    ]
