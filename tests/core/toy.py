"""A Workload of four integers: state n+1 is a pure function of state n, so a whole run takes milliseconds."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relay.core.workload import Finite, Headline, Measures, Progress, Reading, Saved, Share, Splits, StepDigest

MASK = 2**64 - 1
FILES = ("ema.json", "state.json")
MEASURES = Measures(
    Splits(choosing="valid", reported="test"),
    Headline("exact_accuracy", "exactly right", form=".1%"),
    first=("lm_loss", "loss", "exact_accuracy", "accuracy", "lr", "q_halt_loss", "q_halt_accuracy"),
    short={"lm_loss": "loss", "loss": "loss", "exact_accuracy": "exact", "accuracy": "acc"},
    titles={"exact_accuracy": "training, exactly right", "lm_loss": "loss"},
    unseen=("steps",),
)


def state_at(step: int, seed: int = 1) -> tuple[int, ...]:
    """The state an unbroken run has at `step`."""
    values = first(seed)
    for n in range(step):
        values = successor(values, n)
    return values


def first(seed: int) -> tuple[int, ...]:
    return tuple((seed * 0x9E3779B97F4A7C15 + k) & MASK for k in range(4))


def successor(values: tuple[int, ...], step: int) -> tuple[int, ...]:
    a, b, c, d = values
    a = (a * 6364136223846793005 + step + 1442695040888963407) & MASK
    return b, c, d ^ (a >> 7), a


def hash_of(step: int, values: tuple[int, ...]) -> str:
    return hashlib.sha256(json.dumps([step, values]).encode()).hexdigest()


@dataclass(frozen=True)
class Part:
    done: int
    total: int


@dataclass(eq=False)
class ToySnapshot:
    step: int
    values: tuple[int, ...]
    finite: Finite
    before_save: Callable[[], None] = lambda: None

    def save(self, folder: Path) -> Saved:
        self.before_save()
        ema = {"format": 1, "mean": sum(self.values) // 4}
        for name, content in (("state.json", self.content()), ("ema.json", ema)):
            with (folder / name).open("w") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
        return Saved(self.step, hash_of(self.step, self.values), FILES)

    def content(self) -> dict[str, Any]:
        return {"format": 1, "step": self.step, "values": self.values}


@dataclass
class ToyWorkload:
    """`sleep` passes virtual time, `nan_at` makes the state non-finite from that step on, `crash` raises at a step."""

    sleep: Callable[[float], None] = lambda seconds: None
    step_s: float = 0.1
    seed: int = 1
    path: str = "toy"
    impure: int = 0
    """Added at each step: a machine that computes something else."""
    nan_at: int | None = None
    crash: Mapping[int, BaseException] = field(default_factory=dict)
    evaluate_s: float = 0.2
    environment: Mapping[str, str] = field(default_factory=lambda: {"device": "toy"})
    before_save: Callable[[], None] = lambda: None
    step: int = 0
    report_every: int = 1
    values: tuple[int, ...] = ()
    trained: list[int] = field(default_factory=list)
    """Every step this process ran, in order."""
    measures: Measures = MEASURES
    reading: Reading = field(default_factory=Reading)

    def start(self) -> None:
        self.step, self.values = 0, first(self.seed)

    def load(self, folder: Path) -> None:
        content = json.loads((folder / "state.json").read_text())
        if set(content) != {"format", "step", "values"} or len(content["values"]) != 4:
            raise ValueError("state.json is not a toy state")
        self.step, self.values = content["step"], tuple(content["values"])

    def advance(self, until: int, should_stop: Callable[[], bool], report: Callable[[Progress], None] | None) -> None:
        while self.step < until and not should_stop():
            self.sleep(self.step_s)
            if self.step in self.crash:
                raise self.crash[self.step]
            values = successor(self.values, self.step)
            self.values = (values[0] + self.impure, *values[1:])
            self.step += 1
            self.trained.append(self.step)
            if report is not None and (self.step % self.report_every == 0 or self.step == until):
                report(Progress(self.step, {"loss": 1.0 / self.step}))

    def snapshot(self) -> ToySnapshot:
        bad = self.nan_at is not None and self.step >= self.nan_at
        finite = Finite(False, "loss is nan") if bad else Finite(True)
        return ToySnapshot(self.step, self.values, finite, self.before_save)

    def digest(self) -> StepDigest:
        return StepDigest(self.step, self.path, hash_of(self.step, self.values))

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        for part in range(1, 21):
            self.sleep(self.evaluate_s / 20)
            progress(Part(part, 20))
        return {"exact_accuracy": min(1.0, self.step / 1000)}

    def fingerprint(self) -> dict[str, str]:
        return dict(self.environment)

    def config(self) -> dict[str, Any]:
        return {"seed": self.seed}
