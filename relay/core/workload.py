"""What the relay needs of anything that trains: a Workload. Knows nothing of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import Field

Step = Annotated[int, Field(ge=0, lt=2**53)]
"""How many steps have been made: the type of a field of settings and of stored objects."""


@dataclass(frozen=True)
class Splits:
    """The names of the parts of the data on which a model is evaluated. Metrics are stored as `split/name`."""

    choosing: str
    """Evaluated during training; the run's best checkpoint is the best on it."""
    reported: str
    """Evaluated on request; decides nothing."""

    @property
    def names(self) -> tuple[str, str]:
        """Both, the reported one first."""
        return self.reported, self.choosing


@dataclass(frozen=True)
class Headline:
    """The one number by which a model is judged, and how it is shown."""

    name: str
    """Its key in what `Workload.evaluate` returns."""
    title: str
    """Follows the number in a sentence: 93.1% `exactly right`."""
    form: str = ".4g"
    """How the number is written, as for `format`: `.1%` shows a share."""
    better: Literal["higher", "lower"] = "higher"

    def score(self, value: float | None) -> float | None:
        """The number as a commit stores it (`Checkpoint.metric`): the ledger's rules take the highest for the best."""
        return value if value is None or self.better == "higher" else -value

    def value(self, score: float) -> float:
        """The number of a stored score."""
        return score if self.better == "higher" else -score

    def text(self, score: float) -> str:
        """The number of a stored score, as people read it, with its title."""
        return f"{self.value(score):{self.form}} {self.title}"


@dataclass(frozen=True)
class Measures:
    """What a model measures, in training and on its splits, and what people want to see of it first."""

    splits: Splits
    headline: Headline
    first: tuple[str, ...] = ("loss",)
    """Metrics in the order of interest, where there is room for few."""
    short: Mapping[str, str] = field(default_factory=lambda: {"loss": "loss"})
    """What the metrics are called that a line of progress shows."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """What metrics are called in pictures; those that are absent by their own name."""
    unseen: tuple[str, ...] = ()
    """Metrics that no picture shows."""

    @property
    def stored(self) -> str:
        """The headline's name among a commit's metrics."""
        return self.on_split(self.headline.name)

    def on_split(self, name: str) -> str:
        """The stored name of a metric that was evaluated on the split that chooses the best checkpoint."""
        return f"{self.splits.choosing}/{name}"


@dataclass(frozen=True)
class StepDigest:
    """P9: digest of the canonical state at `step`, with everything that decides how it was computed."""

    step: int
    path: str
    """Compile, graph and kernel mode, thread count, batch shape, device kind."""
    digest: str
    """64 hexadecimal digits."""


@dataclass(frozen=True)
class Saved:
    """What `save` wrote into a folder."""

    step: int
    state_hash: str
    """P9's digest of the complete state at `step`; independent of how it was reached or stored."""
    files: tuple[str, ...]
    """File names relative to the folder, sorted."""
    lends: tuple[str, ...] = ()
    """Those of them that later snapshots may borrow, once this one is committed."""
    borrows: tuple[str, ...] = ()
    """Names of files that it needs beside its own: all of one earlier checkpoint, offered by `Borrower.lend`."""


Refit = Callable[[Path, Path], Saved]
"""(a checkpoint's folder, an empty folder to write) → what was written."""


@dataclass(frozen=True)
class Finite:
    """Whether loss and weights were finite (I9)."""

    ok: bool
    reason: str = ""


class Snapshot(Protocol):
    """A frozen copy of the training state; later steps do not change it."""

    step: int
    finite: Finite
    """Checked on the copy when it was taken."""

    def save(self, folder: Path) -> Saved:
        """Write every file of the checkpoint into an empty folder, fsynced. May run on another thread."""
        ...


@dataclass(frozen=True)
class Progress:
    """One line for people and sinks, handed to the session's callback during `advance`."""

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)


class Share(Protocol):
    """How much of something is done."""

    @property
    def done(self) -> int: ...

    @property
    def total(self) -> int: ...


class Workload(Protocol):
    """A training loop the relay can start, stop, save, load and compare.

    Contract: the state after `load(save(state))` equals the state, bit for bit, and its `digest` then is the
    `state_hash` that `save` returned, on every device and in every version that loads the files; the state at step n
    depends on the pinned config and on nothing else (on one path); `advance` returns at a step boundary.
    """

    step: int
    report_every: int
    """Steps between two reports; each may wait for a device."""

    @property
    def measures(self) -> Measures:
        """The splits it evaluates on, and the number that chooses its best checkpoint."""
        ...

    def start(self) -> None:
        """Fresh state at step 0, a function of the pinned config."""
        ...

    def load(self, folder: Path) -> None:
        """Restore from a folder `Snapshot.save` wrote. Raises ValueError (one line) if it does not fit."""
        ...

    def advance(self, until: int, should_stop: Callable[[], bool], report: Callable[[Progress], None] | None) -> None:
        """Train up to step `until`; asked between steps, a true `should_stop` returns early.

        `report` is called for steps whose number is a multiple of `report_every`, and for `until`; these steps are
        done. With None, nothing need wait for a device that is still at it.
        """
        ...

    def snapshot(self) -> Snapshot:
        """A frozen copy of the state now; must not stall training longer than the copy."""
        ...

    def digest(self) -> StepDigest:
        """P9's digest of the state now. Reading its `digest` may wait for a device, on any thread."""
        ...

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        """Metrics of the weights, averaged if there are averages, on a split. Leaves the training state untouched.

        `progress` is called every few seconds, first after a small part; what it raises ends the evaluation.
        """
        ...

    def fingerprint(self) -> dict[str, str]:
        """Environment: device, driver, library versions, instruction set, threads. Short strings, no host name."""
        ...

    def config(self) -> dict[str, Any]:
        """The pinned configuration as plain JSON values."""
        ...


@runtime_checkable
class Borrower(Protocol):
    """A workload whose snapshots can leave out files that an earlier checkpoint of the run holds already.

    A name means one content: the same bytes in every checkpoint of the run. `Workload.load` finds all files in the
    folder, borrowed ones too.
    """

    def lend(self, names: frozenset[str], last: bool) -> None:
        """Before each snapshot: files of committed checkpoints, which it may borrow. last: it is the session's last
        one, so it should be small if it can be."""
        ...


class Kernels(Protocol):
    """What a workload has compiled, in a form that can be carried to another machine; executable, so never trusted."""

    @property
    def key(self) -> str:
        """64 hexadecimal digits over everything that can change the code."""
        ...

    def open(self) -> int:
        """Look for compiled code in the place that `unpack` fills from now on; how much is there. Raises OSError."""
        ...

    def unpack(self, data: bytes) -> int:
        """Add what `pack` made elsewhere; returns the number of files. Raises ValueError (one line), OSError."""
        ...

    def pack(self) -> bytes:
        """Everything compiled so far. Raises ValueError (one line), OSError."""
        ...

    def counts(self) -> Mapping[str, int]:
        """`kernels_loaded` and `kernels_compiled` by this process."""
        ...
