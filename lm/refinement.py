"""The worth of refinement steps next to plain models of equal arithmetic, because a share alone shows nothing.

"Refinement" is the share by which the last step's bits per byte lie below the first's. A first step that was punished
in training makes it large; only the gain over a plain model of equal arithmetic shows whether the steps bring anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

EQUAL = 0.12
"""Arithmetic that differs by at most this share is equal."""
OFTEN = 4.0
"""Epochs from which a text was read often."""

Verdict = Literal["gain", "artefact", "loss", "plain", "no baseline", "n = 1"]


@dataclass(frozen=True)
class Result:
    """One trained model."""

    name: str
    flops: float
    """Of its whole training."""
    bpb: tuple[float, ...]
    """After each refinement step, on the reported split."""
    unigram: float
    """bpb of letter counts on the same rows."""
    epochs: float
    plain: bool
    """One step, no loop."""
    spread: float = 0.0
    """Half of the interval of the last value over seeds; 0 for one seed."""
    n: int = 1
    """Seeds."""


@dataclass(frozen=True)
class Judged:
    """A result next to the plain model of equal arithmetic."""

    result: Result
    baseline: Result | None
    """The best plain model of equal arithmetic."""

    @property
    def refinement(self) -> float | None:
        """Per cent; None for a plain model, and without a baseline, because alone it shows nothing."""
        first, last = self.result.bpb[0], self.result.bpb[-1]
        known = self.baseline is not None and not self.result.plain and first > 0
        return 100 * (first - last) / first if known else None

    @property
    def gain(self) -> float | None:
        """Bits per byte below the baseline; negative above it."""
        return None if self.baseline is None else self.baseline.bpb[-1] - self.result.bpb[-1]

    @property
    def verdict(self) -> Verdict:
        """artefact: later steps are better than the first, but not than a plain model of equal arithmetic.

        One seed a side shows a gain or a loss of nothing but these two runs.
        """
        if self.result.plain:
            return "plain"
        gain, refinement = self.gain, self.refinement
        if gain is None or self.baseline is None or refinement is None:
            return "no baseline"
        if min(self.result.n, self.baseline.n) == 1:
            return "n = 1"
        if gain > self.result.spread + self.baseline.spread:
            return "gain"
        return "artefact" if refinement > 0 else "loss"

    @property
    def marks(self) -> list[str]:
        """Values that letter counts beat, a text that was read often, one seed."""
        one = self.result
        worse = [f"step {step} is worse than letter counts" for step, bpb in enumerate(one.bpb, 1) if bpb > one.unigram]
        return [*worse, *([f"read {one.epochs:.1f} times"] if one.epochs > OFTEN else [])]

    def document(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        one = self.result
        return {
            "experiment": one.name,
            "n": one.n,
            "bpb_first": one.bpb[0],
            "bpb": one.bpb[-1],
            "bpb_by_step": list(one.bpb),
            "flops": one.flops,
            "baseline": self.baseline.name if self.baseline else None,
            "gain": self.gain,
            "refinement_percent": self.refinement,
            "verdict": self.verdict,
            "marks": self.marks,
        }

    def line(self) -> str:
        """The numbers that may stand together. No colon after the name: `plain_tokens: 0.37` reads like a secret."""
        one, said = self.result, [f"{self.result.bpb[-1]:.4f} bpb"]
        if self.gain is not None and not one.plain and self.baseline is not None:
            said = [f"step 1 {one.bpb[0]:.4f}, last {said[0]}", f"gain {self.gain:+.4f} over {self.baseline.name}"]
            said.append(f"refinement {self.refinement:.1f} %")
        return f"{one.name} – {'; '.join([*said, self.verdict, *self.marks])}"


def judged(results: Sequence[Result]) -> list[Judged]:
    """Each result next to the best plain model of equal arithmetic, itself aside."""
    return [Judged(one, _baseline(one, results)) for one in results]


def _baseline(one: Result, results: Sequence[Result]) -> Result | None:
    equal = [
        other
        for other in results
        if other.plain and other is not one and abs(other.flops - one.flops) <= EQUAL * one.flops
    ]
    return min(equal, key=lambda other: other.bpb[-1], default=None)
