"""What goes wrong on the fake Dropbox and when: planned, or by seeded chance; does not know what a route does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

KINDS = {
    "429",  # asked to wait `retry_after` seconds, as JSON
    "429-text",  # the same in plain text, with a Retry-After header
    "500-before", "500-after",  # an error page, without or with the effect
    "drop-before", "drop-after",  # the connection breaks, without or with the effect
    "hang-after",  # the effect, and no answer for `seconds`
    "error",  # a 409 of the route's error type: `error` is its JSON, `summary` its summary
    "401",  # `error` is an AuthError's JSON
    "400", "403",  # plain `text`
    "html",  # the login page of a hotel
    "flip",  # one bit of the body changes on the way
    "cut",  # a download breaks off half way
}  # fmt: skip


@dataclass
class Fault:
    """One way of failing for requests whose route contains `route` and whose argument contains `match`."""

    kind: str
    route: str = ""
    match: str = ""
    skip: int = 0
    times: int = 1
    chance: float = 1.0
    retry_after: float = 1
    seconds: float = 0
    error: Any = None
    summary: str = "fault/."
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind}")


@dataclass
class Faults:
    """The faults of one account. A fault that chance spares is not used up."""

    planned: deque[Fault] = field(default_factory=deque)
    chance: Random = field(default_factory=lambda: Random(0))
    met: list[str] = field(default_factory=list)

    def next(self, route: str, arg: str) -> Fault | None:
        """The fault this request meets."""
        for fault in list(self.planned):
            if fault.route not in route or fault.match not in arg:
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
