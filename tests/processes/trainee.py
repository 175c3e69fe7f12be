"""The toy at real speed: steps, snapshots and evaluations that take real time and memory, each noted in a file."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from relay.core.workload import Progress, Saved, Share, Workload
from tests.app.cli import Toy, ToyPlugin
from tests.core.toy import ToySnapshot
from tests.processes.limits import full_while

WEIGHTS = "weights.bin"


@dataclass
class Notes:
    """Lines `<monotonic seconds> <what> <number>` in a file that outlives a kill."""

    path: str
    handle: int = -1

    def __call__(self, what: str, number: int = 0) -> None:
        if not self.path:
            return
        if self.handle < 0:
            self.handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(self.handle, f"{time.monotonic():.6f} {what} {number}\n".encode())


@dataclass(frozen=True)
class Toll:
    """The cost of training, from TOY_… variables: seconds and bytes."""

    step_s: float = 0.002
    compile_s: float = 0.0
    """The first step of a process."""
    evaluate_s: float = 0.02
    weights: int = 20_000

    @classmethod
    def of(cls, environ: os._Environ[str]) -> Toll:
        """Read from the environment."""
        return cls(
            step_s=float(environ.get("TOY_STEP_S", cls.step_s)),
            compile_s=float(environ.get("TOY_COMPILE_S", cls.compile_s)),
            evaluate_s=float(environ.get("TOY_EVALUATE_S", cls.evaluate_s)),
            weights=int(environ.get("TOY_WEIGHTS", cls.weights)),
        )


def weights_of(values: Sequence[int], size: int) -> bytes:
    """Ballast that belongs to one state only; `size` is rounded down to whole hashes."""
    block = hashlib.sha256(repr(tuple(values)).encode()).digest()
    return block * (size // len(block))


@dataclass(eq=False)
class TraineeSnapshot(ToySnapshot):
    """A toy's snapshot with weights."""

    weights: bytes = b""
    moment: Callable[[str], None] = lambda moment: None

    def save(self, folder: Path) -> Saved:
        with full_while(os.environ.get("TOY_SYNC_FULL_WHILE", "")):
            return self._save(folder)

    def _save(self, folder: Path) -> Saved:
        saved = super().save(folder)
        self.moment("between saving state.json")
        with (folder / WEIGHTS).open("wb") as file:
            file.write(self.weights)
            file.flush()
            os.fsync(file.fileno())
        return Saved(saved.step, saved.state_hash, tuple(sorted((*saved.files, WEIGHTS))))


@dataclass
class Trainee(Toy):
    """A toy that takes the configured time."""

    toll: Toll = field(default_factory=Toll)
    note: Notes = field(default_factory=lambda: Notes(""))
    weights: bytes = b""
    moment: Callable[[str], None] = lambda moment: None

    def __post_init__(self) -> None:
        self.sleep, self.step_s, self.evaluate_s = time.sleep, self.toll.step_s, self.toll.evaluate_s
        self._compiled = self.toll.compile_s == 0

    def load(self, folder: Path) -> None:
        super().load(folder)
        if (folder / WEIGHTS).read_bytes() != weights_of(self.values, self.toll.weights):
            raise ValueError(f"{WEIGHTS} is not of this state")
        self.note("loaded", self.step)

    def advance(self, until: int, should_stop: Callable[[], bool], report: Callable[[Progress], None] | None) -> None:
        if not self._compiled:
            self.note("compiling")
            time.sleep(self.toll.compile_s)
            self._compiled = True

        def reported(progress: Progress) -> None:
            self.note("step", progress.step)
            if report is not None:
                report(progress)

        super().advance(until, should_stop, reported)

    def snapshot(self) -> ToySnapshot:
        self.note("snapshot", self.step)
        self.weights = b""
        self.weights = weights_of(self.values, self.toll.weights)
        plain, copy = super().snapshot(), bytes(memoryview(self.weights))
        return TraineeSnapshot(plain.step, plain.values, plain.finite, weights=copy, moment=self.moment)

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        self.note("evaluating", self.step)
        return super().evaluate(split, rows, progress)


@dataclass
class TraineePlugin(ToyPlugin):
    """The trainee as the application knows it."""

    toll: Toll = field(default_factory=Toll)
    note: Notes = field(default_factory=lambda: Notes(""))
    moment: Callable[[str], None] = lambda moment: None

    def build(
        self, config: BaseModel, device: str, data_root: Path, fetching: object = None, steps: int = 0
    ) -> Workload:
        plain: dict[str, Any] = config.model_dump(mode="json")
        return Trainee(seed=plain["seed"], pinned=plain, toll=self.toll, note=self.note, moment=self.moment)
