"""Measures the stall of training by a checkpoint: steps with a snapshot, a digest and a save, and without.

    python benchmarks/checkpoint_stall.py --task sudoku --train TRAIN.csv --every 12 --count 8

The stall is the time of `every` steps with a checkpoint less that of `every` steps without, alternating; the save
runs on another thread, as in a session, which measures its own stall too (`run --json`). The trainer's own waits are
listed by part.

A turn has few steps: a step's time varies by a percent or two while the card's clock follows its power limit, and
over many steps that exceeds a stall. For the same reason a GPU first trains for some seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from relay.core.workload import Snapshot
from trm.presets import preset
from trm.workload import TrmWorkload

T = TypeVar("T")
SETTLING_S = 6.0
"""Training before the measurement on a GPU: a cool card is some percent faster, and slows down as it warms."""


def workload(task: str, train: str | None, folder: Path) -> TrmWorkload:
    """The preset, on a file of puzzles or on its own data."""
    config = preset(task)
    if train:
        data = config.data.model_copy(update={"train": train, "test": train})
        config = config.model_copy(update={"data": data})
    made = TrmWorkload(config, folder)
    made.start()
    return made


def trained(work: TrmWorkload, steps: int, middle: Callable[[], None]) -> float:
    """Seconds of `steps` steps, with `middle` called half way; what it trains is among them."""
    began, half = time.perf_counter(), work.step + steps // 2
    work.advance(half, lambda: False, lambda _: None)
    middle()
    work.advance(half + steps - steps // 2, lambda: False, lambda _: None)
    if work.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def stalled(work: TrmWorkload, steps: int, checkpoint: Callable[[], None]) -> tuple[float, float]:
    """Seconds of `steps` steps, and how many more they take with a checkpoint among them."""
    without = trained(work, steps, lambda: None)
    return without, trained(work, steps, checkpoint) - without


def settle(work: TrmWorkload) -> None:
    """Take the first steps, which compile; a GPU continues until its clock is steady."""
    trained(work, 6, lambda: None)
    began = time.perf_counter()
    while work.device.type == "cuda" and time.perf_counter() - began < SETTLING_S:
        trained(work, 6, lambda: None)


class Checkpoint:
    """Snapshot N, check it, save it on a thread, queue step N+1 and its digest: as a session does (PROTOCOL P9)."""

    def __init__(self, work: TrmWorkload) -> None:
        self.work = work
        self.parts: dict[str, list[float]] = {"snapshot": [], "finite": [], "step and digest": [], "save (thread)": []}
        self.saving: threading.Thread | None = None

    def __call__(self) -> None:
        snapshot = self._timed("snapshot", self.work.snapshot)
        self._timed("finite", lambda: snapshot.finite)
        self.saving = threading.Thread(target=self._save, args=(snapshot,))
        self.saving.start()
        self._timed("step and digest", self._next)

    def _save(self, snapshot: Snapshot) -> None:
        with tempfile.TemporaryDirectory() as name:
            self._timed("save (thread)", lambda: snapshot.save(Path(name)))

    def _next(self) -> None:
        self.work.advance(self.work.step + 1, lambda: False, None)
        self.work.digest()

    def _timed(self, name: str, run: Callable[[], T]) -> T:
        began = time.perf_counter()
        result = run()
        self.parts[name].append(time.perf_counter() - began)
        return result


def main() -> None:
    """Alternate, print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="sudoku")
    parser.add_argument("--train", help="a CSV of puzzles; without it the task's own data")
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--out", type=Path, help="a folder for checkpoint_stall.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stall-") as name:
        work = workload(args.task, args.train, Path(name))
        settle(work)
        checkpoint, without, stalls = Checkpoint(work), list[float](), list[float]()
        checkpoint()
        for _ in range(args.count):
            seconds, stall = stalled(work, args.every, checkpoint)
            without.append(seconds)
            stalls.append(stall)
            if checkpoint.saving:
                checkpoint.saving.join()
    ms, stall = statistics.median(without) / args.every * 1e3, statistics.median(stalls) * 1e3
    print(f"{args.task} {work.path}: {ms:.2f} ms a step")
    for part, times in checkpoint.parts.items():
        print(f"  {part:18} {statistics.median(times[1:]) * 1e3:8.1f} ms")
    shown = ", ".join(f"{stall * 1e3:.1f}" for stall in stalls)
    print(f"stall {stall:.1f} ms a checkpoint (n = {len(stalls)}: {shown})")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        found = {"path": work.path, "ms": ms, "stall_ms": stall, "n": len(stalls), "steps": args.every * args.count}
        (args.out / "checkpoint_stall.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
