"""A number or a range that says whether it was measured, scaled or guessed, and from what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Mark(IntEnum):
    """How a number was found; a number from several others has the largest of their marks."""

    MEASURED = 0
    SCALED = 1
    GUESSED = 2

    @property
    def sign(self) -> str:
        """In front of a number in a table."""
        return ("", "~", "?")[self]


@dataclass(frozen=True)
class Figure:
    """From `low` to `high`; equal for a single number."""

    low: float
    high: float
    mark: Mark
    basis: str
    """Where it comes from, as half a sentence."""

    def times(self, factor: float) -> Figure:
        """Multiplied by a number that is known."""
        return Figure(self.low * factor, self.high * factor, self.mark, self.basis)

    def by(self, other: Figure) -> Figure:
        """The product of two figures that do not depend on each other."""
        mark = max(self.mark, other.mark)
        return Figure(self.low * other.low, self.high * other.high, mark, f"{self.basis}; {other.basis}")

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"low": self.low, "high": self.high, "mark": self.mark.name.lower(), "basis": self.basis}

    def text(self, digits: int = 2) -> str:
        """`~1.2` or `?0.3–0.9`, with so many significant digits."""
        low, high = (rounded(value, digits) for value in (self.low, self.high))
        return f"{self.mark.sign}{low if low == high else f'{low}–{high}'}"


def rounded(value: float, digits: int) -> str:
    """With so many significant digits, never in powers of ten."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"
