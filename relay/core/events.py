"""What a session reports while it runs: one frozen class for each kind of event, without words for people."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from relay.core.ledger.fields import Certified
from relay.core.ledger.state import Origin


@dataclass(frozen=True)
class Activity:
    """What the session does instead of training; `training` ends it."""

    doing: Literal["training", "first step", "restoring", "evaluating", "finishing"]
    step: int = 0
    percent: int | None = None


@dataclass(frozen=True)
class Continuing:
    """A checkpoint of the store is loaded, and training goes on from it."""

    step: int
    account: str = ""
    """Whose session made it; empty for the first checkpoint of a fork or an import."""
    epoch: int = 0
    origin: Origin | None = None
    """Where such a first checkpoint comes from."""


@dataclass(frozen=True)
class Started:
    """The first step is made. Seconds by phase since the process started."""

    total_s: float
    phases: Mapping[str, float]
    inside: Mapping[str, float] = field(default_factory=dict)
    """Of the first step's own time."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Compiled code that was found, and that had to be made."""


@dataclass(frozen=True)
class LinkCertified:
    """The first step was compared with what the session before had promised (P9)."""

    certified: Certified
    why: str = ""


@dataclass(frozen=True)
class Pace:
    """What a training step takes here, and what the session has left for steps, infinite without a budget."""

    step_s: float
    left_s: float


@dataclass(frozen=True)
class Committed:
    """A step is durable: of this session's training, of an earlier session on this machine, or from this machine's copy
    of a damaged checkpoint."""

    step: int
    source: Literal["training", "unsent", "copy"] = "training"


@dataclass(frozen=True)
class WentBack:
    """Newer checkpoints are damaged; the session goes on from this step (P7)."""

    step: int
    evidence: str


@dataclass(frozen=True)
class LeftAlone:
    """A checkpoint on this machine cannot be trained from, and is not sent."""

    step: int
    why: str


@dataclass(frozen=True)
class OutOfTime:
    """The session's time is over: as a machine slept, or too early to send the last step."""

    unsent: int | None = None
    """The step that stays on this machine."""


@dataclass(frozen=True)
class Trouble:
    """Something failed, and the session goes on without it or tries it again."""

    doing: Literal["commit", "cleaning", "release", "extra step"]
    error: Exception
    expires_s: float = 0.0
    """After a failed release: seconds until the lease runs out by itself."""


@dataclass(frozen=True)
class CompileCache:
    """What became of compiled code that sessions share through the store."""

    found: Literal["local", "unusable", "hit", "miss", "refused", "unreadable", "late", "stored", "not stored"]
    why: str = ""
    files: int = 0
    """Kernels for `local`."""
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class SignalReceived:
    """The system asked the session to end."""

    number: signal.Signals
    under_lease: bool
    """Whether the step is committed first; else nothing was trained yet."""
    again: bool = False
    """A second SIGINT: it ends at once."""


class Transfer(Protocol):
    """Receives how far a checkpoint is on its way."""

    def __call__(self, doing: Literal["sending", "fetching"], step: int, total: int) -> Callable[[int], None]:
        """It begins: `total` bytes. The result is called with each number of bytes done, from any thread."""
        ...


def unseen(doing: Literal["sending", "fetching"], step: int, total: int) -> Callable[[int], None]:
    """A Transfer that shows nothing."""
    return lambda count: None


SessionEvent = (
    Activity
    | Continuing
    | Started
    | LinkCertified
    | Pace
    | Committed
    | WentBack
    | LeftAlone
    | OutOfTime
    | Trouble
    | CompileCache
    | SignalReceived
)
