"""What goes wrong on the fake Drive and when: planned, or by seeded chance; does not know what a route does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

KINDS = {
    "429", "rateLimit", "userRateLimit", "dailyLimit",  # by their documented reasons; Retry-After if `retry_after`
    "quota", "service-quota", "forbidden", "not-found", "no-scope",  # refusals that the account would not meet itself
    "401",  # the access token is refused
    "500-before", "500-after",  # a server's error of `status`, without or with the effect
    "drop-before", "drop-after",  # the connection breaks, without or with the effect
    "hang-after",  # the effect, and no answer for `seconds`
    "slow",  # the right answer after `seconds`
    "html",  # the login page of a hotel
    "flip",  # one bit of the body changes on the way
    "cut",  # a download breaks off half way
    "short",  # half a download, with headers that say it is whole
    "keep",  # an upload server keeps `bytes` of what it was sent
    "no-session",  # an upload session that is gone, with `status` 404 or 410
}  # fmt: skip


@dataclass
class Fault:
    """One way of failing for requests whose route contains `route` and whose text (target, Content-Range and
    metadata) contains `match`."""

    kind: str
    route: str = ""
    match: str = ""
    skip: int = 0
    times: int = 1
    chance: float = 1.0
    status: int = 0
    retry_after: float = 0
    seconds: float = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind}")


@dataclass
class Faults:
    """The faults of one account. A fault that chance spares is not used up."""

    planned: deque[Fault] = field(default_factory=deque)
    chance: Random = field(default_factory=lambda: Random(0))
    met: list[str] = field(default_factory=list)

    def next(self, route: str, text: str) -> Fault | None:
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
