"""What happened in one simulated world: a running digest to compare two runs, and the last actions for whoever reads
a failure; judges nothing."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from dataclasses import dataclass, field, fields
from typing import Any

SHOWN = 40


class Violation(AssertionError):
    """Something happened that the rules forbid."""


@dataclass
class Summary:
    """What the seeds of one call did, to be added up. Times in virtual seconds."""

    seeds: int = 0
    violations: int = 0
    """Seeds that broke a rule; what else they did is not counted."""
    entries: int = 0
    effects: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Ledger entries by kind."""
    exits: Counter[str] = field(default_factory=Counter)
    """Ends of commands by exit code."""
    faults: Counter[str] = field(default_factory=Counter)
    """What the world did to them, and what came of it."""
    worst_loss_s: float = 0.0
    """Most training that one death cost in calm weather."""
    worst_bound_s: float = 0.0
    """What P6 allowed there: commit interval plus snapshot to append."""

    def __add__(self, other: Summary) -> Summary:
        """Both together; worst figures are the worse of the two."""
        both = {}
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            both[one.name] = max(mine, theirs) if one.name.startswith("worst") else mine + theirs
        return Summary(**both)

    def plain(self) -> dict[str, Any]:
        """As values that pass between test workers."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {key: dict(value) if isinstance(value, Counter) else value for key, value in values.items()}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Summary:
        """Back from `plain`."""
        return cls(**{key: Counter(value) if isinstance(value, dict) else value for key, value in plain.items()})

    def line(self) -> str:
        """Everything counted, in one line."""
        told = [f"{self.seeds} seeds", f"{self.violations} violations"]
        told += [f"{self.entries} entries", f"{self.effects} effects on the store"]
        for name in ("kinds", "exits", "faults"):
            counted = getattr(self, name)
            told.append(name + " " + " ".join(f"{key}={counted[key]}" for key in sorted(counted)))
        told.append(f"worst loss {self.worst_loss_s:.0f} s of {self.worst_bound_s:.0f} s allowed")
        return "simulation: " + "; ".join(told)


def told(broken: list[Violation]) -> str:
    """The first violation in full, and of the others what it takes to see them again."""
    others = ["\n".join(str(one).splitlines()[:2]) for one in broken[1:]]
    return "\n\n".join([str(broken[0]), *others])


class Trace:
    """Actions in their order."""

    def __init__(self, seed: int, start: float) -> None:
        self.seed, self.start, self.now = seed, start, start
        self.count = 0
        self.broken: Violation | None = None
        """The first violation; whoever it was raised in may have caught it."""
        self._last: deque[str] = deque(maxlen=SHOWN)
        self._sha = hashlib.sha256()

    def note(self, now: float, who: str, what: str) -> None:
        """One action."""
        self.now = now
        line = f"{now - self.start:12.3f} {who:<8} {what}"
        self.count += 1
        self._last.append(line)
        self._sha.update(line.encode())

    def digest(self) -> str:
        """Of all actions so far."""
        return self._sha.hexdigest()

    def violation(self, what: str) -> Violation:
        """The error to raise: where it happened, and how to see it again."""
        last = "\n".join(self._last)
        found = Violation(
            f"{what}\nat {self.now - self.start:.3f} s of seed {self.seed}; again with RELAY_SIM_SEED={self.seed} "
            f"pytest tests/simulation\nThe last actions:\n{last}"
        )
        self.broken = self.broken or found
        return self.broken
