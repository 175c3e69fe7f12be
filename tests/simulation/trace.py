"""A record of one simulated world: a running digest to compare two runs, and the last actions to explain a failure."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import Any

from tests.simulation.stores import MEMORY

SHOWN = 40


class Violation(AssertionError):
    """Something happened that the rules forbid."""


@dataclass
class Summary:
    """The actions of the seeds of one call, to be added up. Times in virtual seconds."""

    store: str = ""
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
    worst: tuple[float, float] = (0.0, 1.0)
    """The work that a death in calm weather would have cost, and what P6 allowed there, where that came nearest."""

    def __add__(self, other: Summary) -> Summary:
        """Both together, of one store."""
        both = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)[1:-1]}
        return Summary(self.store or other.store, **both, worst=max(self.worst, other.worst, key=_share))

    def at_risk(self, work_s: float, allowed_s: float) -> None:
        """So much work would be lost by a death now."""
        self.worst = max(self.worst, (work_s, allowed_s), key=_share)

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
        counts = {
            "seeds": self.seeds,
            "violations": self.violations,
            "entries": self.entries,
            "commits": self.kinds["commit"],
            "fencings": self.exits["76"],
            "lost races": self.faults["lost-race"],
            "takeovers": self.faults["takeover"],
            "effects on the store": self.effects,
        }
        told = [", ".join(f"{count:,} {name}" for name, count in counts.items())]
        for name in ("kinds", "exits", "faults"):
            counted = getattr(self, name)
            told.append(name + " " + " ".join(f"{key}={counted[key]}" for key in sorted(counted)))
        told.append("at risk in calm weather at most {:.0f} s of work, {:.0f} s allowed".format(*self.worst))
        return f"simulation on {self.store}: " + "; ".join(told)


def _share(worst: tuple[float, float]) -> float:
    return worst[0] / worst[1]


def told(broken: list[Violation]) -> str:
    """The first violation in full; of the others only enough to reproduce them."""
    others = ["\n".join(str(one).splitlines()[:2]) for one in broken[1:]]
    return "\n\n".join([str(broken[0]), *others])


class Trace:
    """Actions in their order."""

    def __init__(self, seed: int, start: float, store: str = MEMORY) -> None:
        self.seed, self.start, self.now, self.store = seed, start, start, store
        self.actions: list[str] = []
        self.broken: Violation | None = None
        """The first violation; whoever it was raised in may have caught it."""

    def note(self, now: float, who: str, what: str) -> None:
        """One action."""
        self.now = now
        self.actions.append(f"{now - self.start:12.3f} {who:<8} {what}")

    def digest(self) -> str:
        """Of all actions so far."""
        return hashlib.sha256("\n".join(self.actions).encode()).hexdigest()

    def compare(self, other: Trace) -> None:
        """Raises Violation where another world of the same seed went another way."""
        if self.digest() == other.digest():
            return
        both = enumerate(zip_longest(self.actions, other.actions, fillvalue="the end"))
        place, (mine, theirs) = next((n, pair) for n, pair in both if pair[0] != pair[1])
        self.actions = self.actions[: place + 1]
        raise self.violation(f"{self.store} goes another way than {other.store}: {mine!r} instead of {theirs!r}")

    def violation(self, what: str) -> Violation:
        """The error to raise: where it happened, and how to see it again."""
        last = "\n".join(self.actions[-SHOWN:])
        found = Violation(
            f"{what}\nat {self.now - self.start:.3f} s of seed {self.seed} on {self.store}; again with "
            f"RELAY_SIM_STORE={self.store} RELAY_SIM_SEED={self.seed} pytest tests/simulation -k invariant\n"
            f"The last actions:\n{last}"
        )
        self.broken = self.broken or found
        return self.broken
