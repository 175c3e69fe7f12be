"""One simulated process: its identity, its drawn faults and a record of its actions; makes no decision of the relay."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from storage.base import Missing, StoreError

POINTS = (
    ("put", "state.json"),
    ("put", "ema.json"),
    ("put", "manifest.json"),
    ("put", "heartbeat"),
    ("put", "/fork"),
    ("put_if_absent", "/ledger/"),
    ("delete", "state.json"),
    ("delete", "manifest.json"),
    ("read_range", "state.json"),
    ("get", "manifest.json"),
    ("stat", "manifest.json"),
    ("now", ""),
    ("disk", "fsync"),
    ("disk", "replace"),
    ("disk", "rename"),
    ("disk", "link"),
    ("disk", "unlink"),
    ("disk", "mkdir"),
)
"""Calls of the store, and changes on disk, at which a process may be killed by name."""


@dataclass
class Fate:
    """When a process is killed by its own calls; none by default."""

    at_call: int = 0
    """Its n-th call of the store; 0 for never."""
    point: tuple[str, str] | None = None
    """The call of that verb on a name with that part …"""
    nth: int = 1
    """… for the n-th time."""
    when: str = "before"
    """… before or after it took effect."""
    calls: int = 0

    def strikes(self, verb: str, name: str, when: str) -> bool:
        """Whether this call is the one."""
        if when != self.when:
            return False
        self.calls += 1
        if self.at_call and self.calls == self.at_call:
            return True
        if self.point and verb == self.point[0] and self.point[1] in name:
            self.nth -= 1
            return self.nth == 0
        return False

    @classmethod
    def drawn(cls, random: Random) -> Fate:
        """Killed at some call, or at some point by name."""
        when = random.choice(("before", "after"))
        if random.random() < 0.4:
            return cls(at_call=random.randrange(1, 120), when=when)
        return cls(point=random.choice(POINTS), nth=random.choice((1, 1, 2, 3, 5, 8)), when=when)


@dataclass(frozen=True)
class Look:
    """A challenger's look at a holder: at `at`, its heartbeat was dated `sign`; the challenger's clock showed `now`."""

    epoch: int
    at: float
    sign: float | None
    now: float


@dataclass(frozen=True)
class Reading:
    """One read of an object: the hash of the bytes read, and whether the store held those bytes."""

    at: float
    size: int
    sha256: str
    true: bool
    connection: int
    stored_as: int
    """Bytes of the whole object, with what a store keeps beside an entry."""


@dataclass(eq=False)
class Actor:
    """A process as the judge knows it."""

    name: str
    machine: str
    account: str
    kill: Callable[[], None] = lambda: None
    fate: Fate = field(default_factory=Fate)
    outsider: bool = False
    """Holds no lease: forks, verifies, registers, resumes."""
    impure: int = 0
    path: str = "toy"
    run: str = ""
    began: float = 0.0
    died: float | None = None
    over: bool = False
    full_at: float = float("-inf")
    """When a store last told it that it is full."""
    troubled_at: float = float("-inf")
    """When a store last failed it, or it woke from a sleep."""
    woke_at: float = float("-inf")
    disk_full_at: float = float("-inf")
    every_steps: int = 0
    """A commit is due after so many steps …"""
    every_s: float = 0.0
    """… or seconds, whichever comes first."""
    step_s: float = 0.0
    evaluate_s: float = 0.0
    """How long a step and an evaluation of its training take."""
    time: float = 0.0
    """The newest time the store told it."""
    looks: list[Look] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    """Names of the entries that it has read as they are."""
    reading: Counter[str] = field(default_factory=Counter)
    """Names of what its threads are reading at this moment."""
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    """By the name of an entry or of a checkpoint's file: each time that it read it."""
    sizes: dict[str, int] = field(default_factory=dict)
    """By the name of an entry: the size that the store last told it."""
    listed: dict[str, float] = field(default_factory=dict)
    """Names that a listing has shown it, and when last."""
    listed_at: dict[str, float] = field(default_factory=dict)
    """When it last listed what is under a prefix."""
    connections: int = 0
    """Fresh ones that it has opened."""
    misread_at: float = float("-inf")
    """When it was last given something else than what a store holds."""
    trained_at: list[tuple[float, int]] = field(default_factory=list)
    """Every step: when, and which."""
    snapshots: dict[int, float] = field(default_factory=dict)
    """When the state of each step was taken."""
    committed: int = 0
    """The newest step it has committed."""

    def die(self, now: float) -> None:
        """SIGKILL."""
        if self.died is None and not self.over:
            self.died = now
            self.kill()

    @property
    def alive(self) -> bool:
        return self.died is None and not self.over

    @property
    def troubled(self) -> bool:
        """Whether a store ever failed it, or it slept."""
        return self.troubled_at > float("-inf")

    @property
    def misread(self) -> bool:
        """Whether any read returned bytes that the store did not hold."""
        return self.misread_at > float("-inf")

    def has_read(self, name: str, data: bytes, true: bool, at: float, connection: int, stored_as: int) -> None:
        """An entry, as it is or otherwise."""
        if true:
            self.read.add(name)
        self.readings.setdefault(name, []).append(
            Reading(at, len(data), hashlib.sha256(data).hexdigest(), true, connection, stored_as)
        )

    def knows(self, entry: str, newest: str) -> bool:
        """Whether it has read an entry as it is, and the newest of its log, and no thread is still reading that log."""
        log = newest.rpartition("/")[0] + "/"
        return {entry, newest} <= self.read and not any(name.startswith(log) for name in +self.reading)

    def has_listed(self, prefix: str, names: Iterable[str], at: float) -> None:
        """The names under a prefix, as far as listings showed them."""
        self.listed_at[prefix] = at
        self.listed |= dict.fromkeys(names, at)

    def looked(self, name: str, sign: float | None, error: StoreError | None, at: float) -> None:
        """It asked for an object's date; only heartbeats matter."""
        if "/heartbeat." in name and (error is None or isinstance(error, Missing)):
            self.looks.append(Look(int(name.rpartition(".")[2]), at, sign, self.time))

    def told_time(self, now: float) -> None:
        """It asked the store's clock."""
        self.time = now
