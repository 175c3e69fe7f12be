"""When something goes wrong on a fake service: planned, or by seeded chance; does not know what a route does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Generic, TypeVar


@dataclass
class Fault:
    """One way of failing for requests whose route contains `route` and whose text contains `match`."""

    kinds: ClassVar[set[str]]
    kind: str
    route: str = ""
    match: str = ""
    skip: int = 0
    times: int = 1
    chance: float = 1.0
    seconds: float = 0

    def __post_init__(self) -> None:
        if self.kind not in self.kinds:
            raise ValueError(f"unknown fault {self.kind}")


F = TypeVar("F", bound=Fault)


@dataclass
class Faults(Generic[F]):
    """The faults of one account. A fault that chance spares is not used up."""

    planned: deque[F] = field(default_factory=deque)
    chance: Random = field(default_factory=lambda: Random(0))
    met: list[str] = field(default_factory=list)

    def next(self, route: str, text: str) -> F | None:
        """The fault this request meets."""
        for fault in list(self.planned):
            if fault.route not in route or fault.match not in text:
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            if fault.chance < 1 and self.chance.random() >= fault.chance:
                continue
            fault.times -= 1
            if fault.times == 0:
                self.planned.remove(fault)
            self.met.append(f"{fault.kind} {route}")
            return fault
        return None
