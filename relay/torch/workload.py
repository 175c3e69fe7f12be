"""The loop around a model's training step, as a workload that a relay can start, stop, save, load and compare.

A model adds its state, its data, its metrics and its evaluation (relay.core.workload).
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from relay.core.workload import Measures, Progress
from relay.torch.caches import KernelCache
from relay.torch.device import settle
from relay.torch.digest import QueuedStepDigest, queued
from relay.torch.faults import TaskError
from relay.torch.fingerprint import fingerprint, installed
from relay.torch.memory import Fit
from relay.torch.peers import Peers
from relay.torch.snapshot import state_digest
from relay.torch.statefile import StateDocument
from relay.torch.steps import LiveState, Step
from relay.torch.together import LeadingStep
from storage.wording import counted

POLL_S = 0.0005
REPORT_EVERY = 20
"""Steps between progress reports; each reads metrics from the device."""


@dataclass(frozen=True)
class Strategy:
    """A step, and lines to print about it."""

    step: Step[Any, Any]
    remarks: tuple[str, ...] = ()
    """Lines to show before training; usually none."""
    count: Callable[[], dict[str, float]] = dict
    """Counts of the step's own, reported with its metrics."""
    too_large: TaskError | None = None
    """Why no split of the batch fits the device's memory."""


def in_parts(
    step: Step[Any, Any],
    fitted: Callable[[], Fit],
    batch: int,
    lead: Callable[[Step[Any, Any], Peers], Step[Any, Any]],
    peers: Peers | None,
    remarks: tuple[str | None, ...] = (),
) -> Strategy:
    """The step in the fewest parts that fit the device's memory, or in single rows if none do; with its peers, if any.

    fitted: raises TaskError if not even single rows fit. lead: makes the leader's step.
    """
    shared, split, too_large = together(peers, batch), None, None
    try:
        found = fitted()
        step.parts, split = found.parts, found.remark
    except TaskError as error:
        step.parts, too_large = batch // (peers.size if peers else 1), error
    told = tuple(remark for remark in (*remarks, shared, split) if remark)
    return Strategy(lead(step, peers) if peers else step, told, too_large=too_large)


def together(peers: Peers | None, batch: int) -> str | None:
    """How the batch is shared. Raises TaskError if it cannot be shared evenly."""
    if peers is None:
        return None
    try:
        mine = peers.rows(batch)
    except ValueError as error:
        raise TaskError(str(error)) from error
    each = mine.stop - mine.start
    return (
        f"TOGETHER: {peers.size} processes share each batch of {batch}, {counted(each, 'row')} each. "
        "The function is the same; links with sessions of another number are not bit-exact."
    )


class PinnedConfig(Protocol):
    """The settings of any model."""

    @property
    def seed(self) -> int: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def threads(self) -> int: ...


class TrainingState(LiveState, Protocol):
    """A model's state."""

    def canonical(self) -> dict[str, Tensor]:
        """The content of P9's digest."""
        ...


S = TypeVar("S", bound=TrainingState)


class SteppedWorkload(Generic[S]):
    """One run's training: the configuration decides every bit of the state at step n, on one path."""

    measures: Measures
    report_every = REPORT_EVERY

    def __init__(self, config: PinnedConfig, device: torch.device, on_xla: bool = False) -> None:
        """The model's own __init__ then sets a strategy by `_use`."""
        self._pinned, self.device, self._on_xla = config, device, on_xla
        self._state: S | None = None
        self._loaded = -1, 0
        """Step and seed of the loaded files; -1: none were loaded."""
        self._loss_since_snapshot = torch.zeros((), dtype=torch.float64, device=device)
        self._in_flight: deque[torch.cuda.Event] = deque()

    def _use(self, chosen: Strategy, more_remarks: tuple[str, ...] = ()) -> None:
        self._step: Step[Any, Any] = chosen.step
        self.remarks: tuple[str, ...] = (*chosen.remarks, *more_remarks)
        self._count, self._too_large = chosen.count, chosen.too_large

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The configuration to pin."""

    @abstractmethod
    def _train_once(self) -> None:
        """One step, noted by the meters."""

    @abstractmethod
    def _report_metrics(self) -> dict[str, float]:
        """Means since the last report; waits for the device."""

    @abstractmethod
    def kernels(self) -> KernelCache | None:
        """The compiled kernels of this training on this machine, not yet in use; None if there are none."""

    @property
    @abstractmethod
    def dtype_name(self) -> str:
        """Type of the activations, for the path."""

    @property
    def state(self) -> S:
        """The live state; `start` or `load` makes it."""
        assert self._state is not None, "start or load comes first"
        return self._state

    @property
    def step(self) -> int:
        """Training steps done."""
        return 0 if self._state is None else self._state.step

    def check_memory(self) -> None:
        """Raises TaskError if the device had too little memory for a step when this was made.

        Data, checkpoints and answers can be looked at all the same.
        """
        if self._too_large is not None:
            raise self._too_large

    def advance(self, until: int, should_stop: Callable[[], bool], report: Callable[[Any], None] | None) -> None:
        """Train to step `until`; returns early if `should_stop`, called before each step, is true.

        Without `report`, nothing waits for the last step: on a GPU it may still be running.
        """
        self.check_memory()
        self._prepare()
        while self.step < until and not should_stop():
            self._train_once()
            self._wait_for_previous()
            if report is not None and (self.step % REPORT_EVERY == 0 or self.step == until):
                report(Progress(self.step, self._report_metrics() | self._count()))

    @cached_property
    def about_run(self) -> StateDocument:
        """The document of every checkpoint, for step 0: built once, because training waits for a snapshot."""
        return StateDocument(
            step=0,
            seed=self._pinned.seed,
            config=self.config(),
            code=installed("trm-relay"),
            fingerprint=self.fingerprint(),
        )

    def digest(self) -> QueuedStepDigest:
        """P9's digest of the state now.

        For a loaded state, by the seed in its files: a fork with another seed starts with its parent's files.
        """
        step, seed = self._loaded
        seed = seed if step == self.step else self._pinned.seed
        return QueuedStepDigest(self.step, self.path, state_digest(self.state.canonical(), self.step, seed))

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds that the first step spent on compiling and capturing; {} for a step without these."""
        return self._step.timings

    @property
    def path(self) -> str:
        """How steps are computed: states of equal paths and configs should have equal bits."""
        batch = f"{self._pinned.batch_size}{self._step.groups}"
        return f"{self._step.name} {self.device.type} {self.dtype_name} batch={batch} threads={self._pinned.threads}"

    def fingerprint(self) -> dict[str, str]:
        """The environment, as short strings."""
        self._prepare()
        return fingerprint(self.device, self._on_xla)

    def _wait_for_previous(self) -> None:
        """Let a GPU lag at most one step behind, so that steps are counted when they end."""
        if (done := queued(self.device)) is not None:
            self._in_flight.append(done)
        if len(self._in_flight) > 1:
            self._wait_for(self._in_flight.popleft())

    def _wait_for(self, done: torch.cuda.Event) -> None:
        """Wait for a step. One that waits for a process that is gone never ends: raises ProcessLost."""
        if not isinstance(self._step, LeadingStep):
            done.synchronize()
            return
        while not done.query():  # type: ignore[no-untyped-call]
            self._step.check()
            time.sleep(POLL_S)

    def _prepare(self) -> None:
        """Called by each entry point, because threads have their own settings."""
        settle(self._pinned.threads)
        if self.device.type == "cuda" and self.device.index is not None:
            torch.cuda.set_device(self.device)  # the default device of kernels, streams and graphs
