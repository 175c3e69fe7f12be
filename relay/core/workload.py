"""The `Workload` interface between the relay and a training loop. Knows no tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import Field

from relay.core.errors import BadConfig

Step = Annotated[int, Field(ge=0, lt=2**53)]
"""A number of steps: the type of a field in settings and stored objects."""


@dataclass(frozen=True)
class Splits:
    """The names of the parts of the data on which a model is evaluated. Metrics are stored as `split/name`."""

    choosing: str
    """Evaluated during training; the run's best checkpoint is the best on it."""
    reported: str
    """Evaluated on request; does not affect the run."""

    @property
    def names(self) -> tuple[str, str]:
        """Both, the reported one first."""
        return self.reported, self.choosing

    def tests(self, also: Iterable[Reading]) -> list[str]:
        """Where the results of a test are stored, by reading: `test`, and for these others `test_raw`, `test_r16`."""
        return list(dict.fromkeys(one.on(self.reported) for one in (Reading(), *also)))


@dataclass(frozen=True)
class Headline:
    """The metric that chooses the best checkpoint, and its format."""

    name: str
    """Its key in the result of `Workload.evaluate`."""
    title: str
    """Follows the number in a sentence: 93.1% `exactly right`."""
    form: str = ".4g"
    """Format specification of the number: `.1%` for a share."""
    better: Literal["higher", "lower"] = "higher"

    def score(self, value: float | None) -> float | None:
        """The number as a commit stores it (`Checkpoint.metric`): in the ledger, the highest is the best."""
        return value if value is None or self.better == "higher" else -value

    def value(self, score: float) -> float:
        """The number of a stored score."""
        return score if self.better == "higher" else -score

    def text(self, score: float) -> str:
        """The formatted number of a stored score, with its title."""
        return f"{self.value(score):{self.form}} {self.title}"


@dataclass(frozen=True)
class Measures:
    """The metrics of a model, in training and on its splits, with their order and titles."""

    splits: Splits
    headline: Headline
    first: tuple[str, ...] = ("loss",)
    """The most interesting metrics first, for places with room for few."""
    short: Mapping[str, str] = field(default_factory=lambda: {"loss": "loss"})
    """Short names of the metrics in a progress line."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Titles of metrics in plots; other metrics keep their own name."""
    shares: tuple[str, ...] = ()
    """Metrics between 0 and 1 that are printed in percent; accuracies always are."""
    unseen: tuple[str, ...] = ()
    """Metrics that no plot shows."""
    count: str = "n"
    """The metric of an evaluation that holds its number of rows, if it has one."""

    @property
    def stored(self) -> str:
        """The headline's name among a commit's metrics."""
        return self.on_split(self.headline.name)

    def on_split(self, name: str) -> str:
        """The stored name of a metric that was evaluated on the split that chooses the best checkpoint."""
        return f"{self.splits.choosing}/{name}"


_READING = re.compile(r"raw|recursions=([1-9][0-9]{0,3})")


@dataclass(frozen=True)
class Reading:
    """How an evaluation reads a state: averaged or raw weights, and how many recursions."""

    raw: bool = False
    recursions: int | None = None
    """None: as many as in training."""

    @classmethod
    def of(cls, text: str) -> Reading:
        """From `raw` or `recursions=N`. Raises ValueError."""
        found = _READING.fullmatch(text)
        if found is None:
            raise ValueError(f"a reading is raw or recursions=N, not {text!r}")
        return cls(recursions=int(found[1])) if found[1] else cls(raw=True)

    def on(self, split: str) -> str:
        """The stored name of a split under this reading: `test`, `test_raw`, `test_r16`."""
        recursions = "" if self.recursions is None else f"_r{self.recursions}"
        return f"{split}{'_raw' if self.raw else ''}{recursions}"

    def named(self, split: str, name: str) -> str:
        """The stored name of a metric under this reading: `test/loss`, `test_raw/loss`, `test_r16/loss`."""
        return f"{self.on(split)}/{name}"


@dataclass(frozen=True)
class StepDigest:
    """P9: digest of the canonical state at `step`, and the path that computed it."""

    step: int
    path: str
    """Compile, graph and kernel mode, thread count, batch shape, device kind."""
    digest: str
    """64 hexadecimal digits."""


@dataclass(frozen=True)
class Saved:
    """The files that `save` wrote into a folder."""

    step: int
    state_hash: str
    """P9's digest of the complete state at `step`; independent of the path and of the file format."""
    files: tuple[str, ...]
    """File names relative to the folder, sorted."""
    lends: tuple[str, ...] = ()
    """Files that later snapshots may borrow, once this one is committed."""
    borrows: tuple[str, ...] = ()
    """Names of borrowed files: all from one earlier checkpoint, offered by `Borrower.lend`."""


Refit = Callable[[Path, Path], Saved]
"""(a checkpoint's folder, an empty folder to write) → the written files."""


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
    """Metrics of one step, for the session's callback during `advance`."""

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)


class Share(Protocol):
    """Progress of a task: units done and in total."""

    @property
    def done(self) -> int: ...

    @property
    def total(self) -> int: ...


class ProcessLost(Exception):
    """A process that shares each step is gone, or does not answer. The step was not made, and none can follow."""

    def __init__(self, text: str, whole: bool) -> None:
        """`whole`: whether the state is still the one before that step."""
        super().__init__(text)
        self.whole = whole


class Workload(Protocol):
    """A training loop that the relay can start, stop, save, load and compare.

    Contract:
    - The state after `load(save(state))` equals the state, bit for bit. Its `digest` is the `state_hash` that `save`
      returned, on every device and in every version that loads the files.
    - On one path, the state at step n depends on the pinned configuration only.
    - `advance` returns at a step boundary.
    """

    step: int
    report_every: int
    """Steps between two reports. Each report may wait for the device."""

    @property
    def measures(self) -> Measures:
        """Its metrics, splits and headline metric."""
        ...

    def start(self) -> None:
        """Create the state at step 0, a function of the pinned configuration."""
        ...

    def load(self, folder: Path) -> None:
        """Restore from a folder that `Snapshot.save` wrote. Raises ValueError (one line) if it does not fit."""
        ...

    def advance(self, until: int, should_stop: Callable[[], bool], report: Callable[[Progress], None] | None) -> None:
        """Train up to step `until`. Called between steps, a true `should_stop` returns early.

        `report` is called after steps that are a multiple of `report_every`, and after `until`; the device has done
        them. With None, the call need not wait for the device. Raises ProcessLost.
        """
        ...

    def snapshot(self) -> Snapshot:
        """A frozen copy of the current state. Must not stall training longer than the copy."""
        ...

    def digest(self) -> StepDigest:
        """P9's digest of the current state. Reading its `digest` may wait for the device, on any thread."""
        ...

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        """Metrics of the weights (of their average, if there is one) on a split. Does not change the training state.

        `progress` is called every few seconds, first after a small part; an exception from it ends the evaluation.
        """
        ...

    def fingerprint(self) -> dict[str, str]:
        """Environment: device, driver, library versions, instruction set, threads. Short strings, no host name."""
        ...

    def config(self) -> dict[str, Any]:
        """The pinned configuration as plain JSON values."""
        ...


@runtime_checkable
class Publisher(Protocol):
    """A workload that also writes files for other programs."""

    def publish(self, progress: Callable[[Share], None]) -> None:
        """Called after each evaluation, with the evaluated state; nothing happens if no folder was named.

        `progress` is as in `evaluate`. Raises OSError.
        """
        ...


@runtime_checkable
class Borrower(Protocol):
    """A workload whose snapshots can omit files that an earlier checkpoint of the run already holds.

    A name has the same bytes in every checkpoint of the run. `Workload.load` finds all files in the folder, borrowed
    ones too.
    """

    def lend(self, names: frozenset[str], last: bool) -> None:
        """Called before each snapshot with the files of committed checkpoints that it may borrow.

        `last`: it is the session's last one, which should be small if possible.
        """
        ...


@runtime_checkable
class Readable(Protocol):
    """A workload whose evaluations follow `reading`."""

    reading: Reading


class NotReadable(BadConfig):
    """The model evaluates its state in one way only."""

    def __init__(self) -> None:
        super().__init__("This model has no other reading of its state, such as raw weights or other recursions.")


def check_readings(workload: Workload, readings: Sequence[Reading]) -> None:
    """Raises NotReadable (78) if the workload does not have one of them."""
    if any(reading != Reading() for reading in readings) and not isinstance(workload, Readable):
        raise NotReadable


@contextmanager
def read_as(workload: Workload, reading: Reading) -> Iterator[None]:
    """Evaluations within the block follow `reading`. Raises NotReadable (78)."""
    check_readings(workload, (reading,))
    if not isinstance(workload, Readable):
        yield
        return
    before, workload.reading = workload.reading, reading
    try:
        yield
    finally:
        workload.reading = before


class Kernels(Protocol):
    """A workload's compiled code, portable to other machines. It is executable, so never trusted."""

    @property
    def key(self) -> str:
        """64 hexadecimal digits over everything that can change the code."""
        ...

    def open(self) -> int:
        """Use compiled code from the folder that `unpack` fills. Returns the number of files. Raises OSError."""
        ...

    def unpack(self, data: bytes) -> int:
        """Add another machine's `pack`. Returns the number of files. Raises ValueError (one line), OSError."""
        ...

    def pack(self) -> bytes:
        """Everything compiled so far. Raises ValueError (one line), OSError."""
        ...

    def counts(self) -> Mapping[str, int]:
        """`kernels_loaded` and `kernels_compiled` by this process."""
        ...
