"""Solves a tasks file: answers its rows breadth first, keeps the votes, and rewrites a submission that is always valid.

Rows are divided into chunks once, by arithmetic and not by speed, and each chunk is computed whole: so the same
command, killed and started again, ends at the same bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relay.torch.device import settle
from relay.torch.faults import TaskError
from storage.wording import counted
from trm.competition.begin import Begun
from trm.competition.layout import Layout
from trm.competition.pace import Pace
from trm.competition.votestore import VOTE_BYTES, Vote
from trm.competition.weights import Trained
from trm.config import Arch
from trm.cost import EVALUATED, forward_flops
from trm.data.arc.provenance import TRANSDUCTIVE
from trm.data.arc.votes import Answer, Votes
from trm.data.dataset import Batch
from trm.evaluate import answers
from trm.model import Inner, Sizes

CHUNK_FLOPS = {"cpu": 2e10, "cuda": 2.5e14}
"""Arithmetic of a chunk: seconds on a slow device of the kind, and enough rows to fill a fast one."""


class DeviceGone(TaskError):
    """A GPU does not answer any more."""

    def __init__(self, device: torch.device, error: RuntimeError) -> None:
        super().__init__(
            f"{device} failed: {str(error).splitlines()[0]}. The votes are kept, and the submission is valid. Run the "
            f"same command again, with device=cpu if the GPU is gone."
        )


@dataclass(frozen=True)
class Options:
    """What decides the votes, besides weights and tasks."""

    variants: int
    """Of each task at most, the original counted."""
    steps: int
    """Of recursion."""
    threads: int = 2
    chunk: int | None = None
    """Rows at once; None: by the device. Another number may change the last bits of an answer."""

    def binding(self, weights: str, tasks: str, adapted: str | None = None) -> dict[str, Any]:
        """What the votes are bound to. adapted: hash of the weights that answer, if the given ones were adapted."""
        bound = {"weights": weights, "tasks": tasks, "variants": self.variants, "steps": self.steps}
        return bound | ({"adapted": adapted} if adapted else {})


@dataclass(frozen=True)
class Progress:
    """After each round."""

    rows: int
    total: int
    covered: int
    """Inputs with a valid candidate."""
    inputs: int
    rows_a_second: float
    """Of this process; 0 before the first round."""
    left: float
    """Seconds until the deadline; infinite without one."""


@dataclass(frozen=True)
class Outcome:
    """The end of a solve."""

    complete: bool
    """Whether every planned vote is in."""
    votes: Votes
    total: int
    """Planned votes."""
    resumed: int
    """Votes that earlier processes had made."""
    rows_a_second: float
    notes: tuple[str, ...]

    @classmethod
    def without_votes(cls, layout: Layout, note: str) -> Outcome:
        """Of a solve that ended before its first row."""
        return cls(False, Votes(layout.questions), len(layout.order), 0, 0.0, (note,))


def chunk_rows(arch: Arch, sizes: Sizes, steps: int, kind: str) -> int:
    """Rows of a chunk on a kind of device."""
    each = steps * forward_flops(arch, sizes)
    return max(1, min(EVALUATED[kind], int(CHUNK_FLOPS[kind] / each)))


def devices_of(device: str) -> list[torch.device]:
    """Every visible GPU for 'cuda', or the one device."""
    if device == "cuda":
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    return [torch.device(device)]


class Answering:
    """The network on every device, and the division of rows into chunks."""

    def __init__(
        self,
        layout: Layout,
        trained: Trained,
        options: Options,
        devices: Sequence[torch.device],
        now: Callable[[], float],
    ) -> None:
        """Raises ValueError if the weights do not fit."""
        settle(options.threads)
        self._layout, self._options, self._now = layout, options, now
        self.networks = [(device, trained.network(layout.table, device)) for device in devices]
        sizes = self.networks[0][1].sizes
        self._rows = options.chunk or chunk_rows(trained.arch, sizes, options.steps, devices[0].type)

    def chunks(self, done: np.ndarray) -> Iterator[np.ndarray]:
        """The rows of each chunk that are not `done`; a chunk whose votes were cut off is computed whole."""
        rows = iter(self._layout.order.tolist())
        while chunk := list(islice(rows, self._rows)):
            missing = np.array([row for row in chunk if not done[row]], dtype=np.int64)
            if len(missing):
                yield missing

    def answers(self, chunks: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Tokens and halting logits of each chunk, a chunk on each device at the same time. Raises DeviceGone."""
        launched = []
        for rows, (device, network) in zip(chunks, self.networks, strict=False):
            with _gone(device):
                launched.append((device, self._launch(rows, device, network)))
        found = []
        for device, pair in launched:
            with _gone(device):
                found.append((pair[0].cpu().numpy(), pair[1].cpu().numpy()))
        return found

    def seconds_for_all(self) -> float:
        """Time for all rows, measured on a round whose answers are thrown away."""
        waiting = list(self.chunks(np.zeros(len(self._layout.order), dtype=bool)))
        each, took = len(self.networks), 0.0
        for _ in range(2):  # the first one warms up
            started = self._now()
            self.answers(waiting[:each])
            took = self._now() - started
        return took * -(-len(waiting) // each)

    def _launch(self, rows: np.ndarray, device: torch.device, network: Inner) -> tuple[Tensor, Tensor]:
        """A chunk; in halves if the device has too little memory for it."""
        batch = self._layout.questions.at(rows)
        try:
            moved = Batch(*(tensor.to(device) for tensor in vars(batch).values()))
            return answers(network, moved, steps=self._options.steps)
        except torch.OutOfMemoryError:
            if len(rows) == 1:
                raise
        halves = [self._launch(part, device, network) for part in np.array_split(rows, 2)]
        return torch.cat([one for one, _ in halves]), torch.cat([other for _, other in halves])


@contextmanager
def _gone(device: torch.device) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if device.type == "cuda":
            raise DeviceGone(device, error) from error
        raise


class Solver:
    """One process of a solve. The votes of earlier ones are read first."""

    def __init__(
        self,
        begun: Begun,
        layout: Layout,
        answering: Answering,
        binding: Mapping[str, Any],
        pace: Pace,
        report: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """Raises OtherVotes, NoRoom."""
        self._begun, self._layout, self.answering, self._pace, self._report = begun, layout, answering, pace, report
        self.votes = Votes(layout.questions)
        self.notes = list[str]()
        found = begun.store.begin(len(layout.order), **binding)
        self._done = np.zeros(len(layout.order), dtype=bool)
        self._count([Answer(vote.row, _grid(vote.grid), vote.halt) for vote in found.votes])
        self.resumed = self.votes.rows
        written = min(len(layout.order), self.resumed + (found.size - found.good) // VOTE_BYTES)
        self._hold = 0 if begun.fresh else written
        """Votes before the file on disk is replaced: it may have counted those that were lost."""
        if found.damaged:
            self.notes.append(
                f"{begun.store.path.name} was damaged after {counted(self.resumed, 'vote')}: it is kept as "
                f"{begun.store.path.name}.damaged, and the rest is computed again"
            )

    def run(self) -> Outcome:
        """Answer what is missing until all is answered or the time is over. Raises NoRoom, DeviceGone."""
        waiting, began, answered = deque(self.answering.chunks(self._done)), self._pace.now(), 0
        while waiting and self._pace.affords():
            started = self._pace.now()
            chunks = [waiting.popleft() for _ in range(min(len(waiting), len(self.answering.networks)))]
            for rows, (predicted, halts) in zip(chunks, self.answering.answers(chunks), strict=True):
                self._keep(self.votes.read(rows, predicted, halts))
                answered += len(rows)
            self._pace.round(self._pace.now() - started)
            self._report(self._progress(answered / max(self._pace.now() - began, 1e-9)))
            if self._pace.rewrites():
                self._rewrite()
        self._rewrite()
        speed = answered / max(self._pace.now() - began, 1e-9)
        return Outcome(not waiting, self.votes, len(self._layout.order), self.resumed, speed, tuple(self.notes))

    def _keep(self, found: Sequence[Answer]) -> None:
        store = self._begun.store
        store.append([Vote(one.row, None if one.grid is None else _packed(one.grid), one.halt) for one in found])
        self._count(found)

    def _count(self, found: Sequence[Answer]) -> None:
        self.votes.count(found)
        self._done[[one.row for one in found]] = True

    def _rewrite(self) -> None:
        if self.votes.rows < self._hold:
            return
        started = self._pace.now()
        self._begun.store.sync()
        self._begun.write(self.votes.submission(self._begun.tasks))
        self._pace.wrote(self._pace.now() - started)

    def _progress(self, speed: float) -> Progress:
        left = self._pace.deadline - self._pace.now()
        covered = round(self.votes.coverage * self._begun.inputs)
        return Progress(self.votes.rows, len(self._layout.order), covered, self._begun.inputs, speed, left)


def _packed(grid: np.ndarray) -> bytes:
    return bytes(grid.shape) + np.ascontiguousarray(grid, dtype=np.uint8).tobytes()


def _grid(packed: bytes | None) -> np.ndarray | None:
    if packed is None:
        return None
    return np.frombuffer(packed[2:], np.uint8).reshape(packed[0], packed[1])


def provenance(
    begun: Begun,
    layout: Layout,
    trained: Trained,
    options: Options,
    outcome: Outcome,
    adapted: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The block that belongs to every submission, as plain JSON values."""
    votes, unknown = outcome.votes, len(layout.unknown)
    without = sum(not votes.ranked(pair) for _, pairs in votes.groups() for pair in pairs)
    warnings = list(outcome.notes)
    if unknown and adapted is None and trained.names is None:
        warnings.append(
            "the weights come without their list of identifiers, so every task has the mean row, which solves nothing; "
            "name their data (data.source=...), or put its identifiers.json next to them (`export` with that data does)"
        )
    elif unknown and adapted is None:
        warnings.append(
            f"the list of identifiers of the weights lacks {unknown:,} of {counted(len(begun.tasks), 'task')}: such "
            f"tasks have the mean row, which solves nothing"
        )
    if not outcome.complete:
        warnings.append(f"only {votes.rows:,} of {counted(outcome.total, 'vote')} came in")
    return {
        "training": None if unknown == len(begun.tasks) and adapted is None else TRANSDUCTIVE,
        "adapted": adapted,
        "weights": f"sha256:{trained.hash}",
        "source": dict(trained.source),
        "identifiers": None if trained.names is None else f"sha256:{trained.names.hash}",
        "tasks": {"file": begun.path.name, "content": f"sha256:{begun.hash}", "tasks": len(begun.tasks)},
        "outputs": begun.inputs,
        "unknown_tasks": unknown,
        "fallback_outputs": without,
        "variants": options.variants,
        "steps": options.steps,
        "checkpoints": 1,
        "rows_without_grid": votes.invalid,
        "warnings": warnings,
    }
