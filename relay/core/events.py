"""Events that a session reports while it runs: one frozen class for each kind, without text for people."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from relay.core.ledger.fields import Certified
from relay.core.ledger.state import Origin
from relay.core.workload import ProcessLost


@dataclass(frozen=True)
class Activity:
    """The session's activity in place of training; the event `training` ends it."""

    doing: Literal["training", "first step", "restoring", "evaluating", "finishing"]
    step: int = 0
    percent: int | None = None


@dataclass(frozen=True)
class Continuing:
    """A checkpoint of the store is loaded, and training continues from it."""

    step: int
    account: str = ""
    """The account whose session made it; empty for the first checkpoint of a fork or an import."""
    epoch: int = 0
    origin: Origin | None = None
    """The source of such a first checkpoint."""


@dataclass(frozen=True)
class Started:
    """The first step is done. Seconds by phase since the process started."""

    total_s: float
    phases: Mapping[str, float]
    inside: Mapping[str, float] = field(default_factory=dict)
    """Parts of the first step's own time."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers of kernels that were found, and that were compiled."""


@dataclass(frozen=True)
class LinkCertified:
    """The first step was compared with the previous session's digest (P9)."""

    certified: Certified
    why: str = ""


@dataclass(frozen=True)
class Pace:
    """Seconds of a training step, and seconds left for steps; infinite without a budget."""

    step_s: float
    left_s: float


@dataclass(frozen=True)
class Committed:
    """A step is durable: trained by this session, trained by an earlier session of this machine and unsent, or restored
    from this machine's copy of a damaged checkpoint."""

    step: int
    source: Literal["training", "unsent", "copy"] = "training"


@dataclass(frozen=True)
class LateResult:
    """A reading of the test that the commit at the target lacks has a result now, for everybody."""

    step: int
    reading: str


@dataclass(frozen=True)
class TargetChanged:
    """This session changed the target of the run, for everybody."""

    before: int
    after: int
    account: str


@dataclass(frozen=True)
class WentBack:
    """Newer checkpoints are damaged; the session continues from this step (P7)."""

    step: int
    evidence: str


@dataclass(frozen=True)
class LeftAlone:
    """A checkpoint on this machine cannot be continued, and is not sent."""

    step: int
    why: str


@dataclass(frozen=True)
class OutOfTime:
    """The session's time is over, because the machine slept, or before the last step was sent."""

    unsent: int | None = None
    """The step that is only on this machine."""


@dataclass(frozen=True)
class ProcessGone:
    """A process that shares each step is gone; the session commits its state and ends."""

    error: ProcessLost
    step: int


@dataclass(frozen=True)
class Trouble:
    """An action failed; the session continues without it or tries again."""

    doing: Literal["commit", "cleaning", "release", "proposal", "extra step", "publishing"]
    error: Exception
    expires_s: float = 0.0
    """After a failed release: seconds until the lease expires."""


@dataclass(frozen=True)
class CompileCache:
    """The result of sharing compiled code through the store."""

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
    """Whether the step is committed first; otherwise nothing was trained yet."""
    again: bool = False
    """A second SIGINT: it ends at once."""


class Transfer(Protocol):
    """Receives the progress of an upload or a download."""

    def __call__(self, doing: Literal["sending", "fetching"], step: int, total: int) -> Callable[[int], None]:
        """A transfer of `total` bytes begins. The result is called with each number of bytes done, from any thread."""
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
    | LateResult
    | TargetChanged
    | WentBack
    | LeftAlone
    | OutOfTime
    | ProcessGone
    | Trouble
    | CompileCache
    | SignalReceived
)
