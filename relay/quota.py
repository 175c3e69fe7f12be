"""What is left of an account's hours, and how that is known; reads no clock and no store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["official", "declared", "estimated"]


@dataclass(frozen=True)
class Quota:
    """Hours left until the provider's next reset, in seconds; times are unix seconds by the store's clock."""

    left_s: float
    """Never below zero. What was measured since `read_at` is taken off already."""
    of_s: float | None
    """The whole allowance of one period; None if unknown."""
    source: Source
    """The provider's own number, what a person said, or weekly hours less what was measured here."""
    read_at: float
    """When the number was read or said; for an estimate, the moment it was computed."""
    resets_at: float | None
    """None where the provider names no reset."""

    def age_s(self, now: float) -> float:
        """How old the number is."""
        return max(0.0, now - self.read_at)
