"""Sessions' steps around a memory limit: each fits, is split, or is refused, and the kernel kills none.

    python benchmarks/memory_limit.py [--group /sys/fs/cgroup/memory/…] [--sudoku]
Each case runs in a fork of this process, in a control group (version 1) of its own below --group, by default below this
process's. The limits are set around the predicted need of the case, so the shapes are small and take seconds. --sudoku
also asks for the published task in a group of 4 GB.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from benchmarks.cpu_memory import ATTENTION, MAZE, NARROW, SMALL, SUDOKU, config_of, shape, steps
from relay.torch.memory import SLACK
from trm.cost import need
from trm.presets import preset
from trm.tasks import sizes_of
from trm.workload import strategy

CPU = torch.device("cpu")
FACTORS = (0.3, 0.6, 0.9, 1.0, 1.2)
"""Limits, as shares of what the whole batch needs."""
CASES = [
    shape(SUDOKU, 24, **NARROW),
    shape(SUDOKU, 24, **NARROW, **ATTENTION),
    shape(SMALL, 128, **NARROW),
    shape(MAZE, 3, **NARROW, **ATTENTION),
]


@contextmanager
def limited(parent: Path, limit: int) -> Iterator[Path]:
    """A control group with that limit, removed at the end."""
    folder = parent / f"relay-limit-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(limit))
        yield folder
    finally:
        folder.rmdir()


def in_group(parent: Path, limit: int, act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Facts that `act` returns in a fork of this process with that limit, and its exit."""
    near, far = multiprocessing.Pipe(duplex=False)

    def body(folder: Path) -> None:
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        far.send(act())

    with limited(parent, limit) as folder:
        child = multiprocessing.get_context("fork").Process(target=body, args=(folder,))
        child.start()
        child.join()
        peak = int((folder / "memory.max_usage_in_bytes").read_text())
    facts = near.recv() if near.poll() else {}
    return {**facts, "exit": child.exitcode, "limit_mb": limit // 10**6, "group_peak_mb": peak // 10**6}


def try_steps(case: dict[str, Any]) -> dict[str, Any]:
    """Choose the step as a session does, and take it."""
    config, sizes = config_of(case)
    chosen = strategy(CPU, config, sizes)
    if chosen.too_large is not None:
        return {"outcome": "refused", "why": str(chosen.too_large)}
    steps(config, sizes, chosen.step)
    parts = chosen.step.parts
    return {"outcome": "split" if parts > 1 else "whole", "parts": parts, "rss_mb": _peak() // 10**6}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def try_sudoku() -> dict[str, Any]:
    """The published task: only the choice, a step takes minutes on a CPU."""
    config = preset("sudoku")
    chosen = strategy(CPU, config, sizes_of("sudoku"))
    return {"parts": chosen.step.parts, "remarks": chosen.remarks, "refused": str(chosen.too_large or "")}


def own_group() -> Path:
    """This process's control group for memory."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    path = next(line.split(":", 2)[2] for line in lines if "memory" in line.split(":")[1].split(","))
    return Path("/sys/fs/cgroup/memory") / path.lstrip("/")


def main() -> None:
    """One line of JSON for each case; exit code 1 if one was killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--group", type=Path, default=own_group())
    parser.add_argument("--sudoku", action="store_true")
    given, killed = parser.parse_args(), 0
    if given.sudoku:
        for limit in (4_000_000_000, 1_000_000_000):
            print(json.dumps(in_group(given.group, limit, try_sudoku)), flush=True)
    for case in CASES:
        config, sizes = config_of(case)
        whole = need(config, sizes, "eager", kind="cpu").session(config.batch_size)
        for factor in FACTORS:
            found = in_group(given.group, int(whole * SLACK * factor), lambda case=case: try_steps(case))
            killed += found["exit"] != 0
            print(json.dumps({"factor": factor, **found, "case": case}), flush=True)
    print(json.dumps({"killed": killed}))
    sys.exit(bool(killed))


if __name__ == "__main__":
    main()
