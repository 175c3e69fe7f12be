"""Whole sessions around a memory limit of 4 GB: each fits, is split, or is refused with what would fit.

    python benchmarks/memory_sessions.py [--limit 4e9] [--group /sys/fs/cgroup/memory/…]
Each session is a real command in a control group (version 1) of its own: two steps, each followed by a commit and an
evaluation. Batches are chosen by the predicted need, as shares of what the limit leaves. The networks are narrow, so
that much memory costs little arithmetic. A refused command is repeated with the batch that it names. One line of JSON
for each session; exit code 1 if the kernel killed one, or one ended otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.memory_limit import limited, own_group
from trm.config import Arch
from trm.cost import SLACK, need
from trm.presets import preset
from trm.tasks import sizes_of

ROOT = Path(__file__).resolve().parents[1]
NARROW = {"hidden_size": 32, "num_heads": 4, "H_cycles": 1, "L_cycles": 2, "puzzle_emb_ndim": 32, "puzzle_emb_len": 1,
          "forward_dtype": "float32"}  # fmt: skip
WIDE = {**NARROW, "hidden_size": 4096, "puzzle_emb_ndim": 4096}
PROGRAM = 500_000_000
"""Bytes of the program itself: Python, torch, data."""
SHARES = (0.85, 0.98, 1.02, 1.6)
CASES = [
    *((task, NARROW, share) for task in ("sudoku4", "sudoku", "sudoku_att", "maze") for share in SHARES),
    *((task, WIDE, None) for task in ("sudoku4", "sudoku", "sudoku_att", "maze")),
]
"""Task, network, and the batch's need as a share of what the limit leaves; without one, a batch that never fits."""


def batch_of(task: str, arch: dict[str, Any], wanted: float) -> int:
    """The largest batch that needs no more than that."""
    base = preset(task)
    shaped = base.model_copy(update={"arch": Arch(**{**base.arch.model_dump(), **arch})})

    def needed(batch: int) -> float:
        config = shaped.model_copy(update={"batch_size": batch})
        return need(config, sizes_of(config), "eager", kind="cpu").session(batch) * SLACK

    return max(1, bisect_right(range(1, 200_000), wanted, key=needed))


def session(group: Path, limit: int, words: list[str], place: Path) -> dict[str, Any]:
    """A command in a control group with that limit: its exit, its words about memory, and the group's own numbers."""
    command = [sys.executable, str(ROOT / "rotate_accounts.py"), *words]
    environ = {**os.environ, "HOME": str(place), "RELAY_CPU": "1", "RELAY_STORE": (place / "store").as_uri()}
    with limited(group, limit) as folder:
        began = time.monotonic()
        done = subprocess.run(
            command,
            cwd=place,
            env=environ,
            capture_output=True,
            text=True,
            preexec_fn=lambda: (folder / "cgroup.procs").write_text(str(os.getpid())) and None,
        )
        peak = int((folder / "memory.max_usage_in_bytes").read_text())
        killed = int((folder / "memory.oom_control").read_text().split("oom_kill ")[1])
    told = re.search(r"MEMORY: .*? in (\d+) parts", " ".join(done.stderr.split()))
    return {
        "exit": done.returncode,
        "parts": int(told[1]) if told else 1,
        "seconds": round(time.monotonic() - began, 1),
        "group_peak_mb": peak // 10**6,
        "oom_kills": killed,
        "said": done.stderr.strip()[-700:],
    }


def sessions(group: Path, limit: int, place: Path) -> Iterator[dict[str, Any]]:
    """Every case, and what a refusal advises."""
    for number, (task, arch, share) in enumerate(CASES):
        batch = 256 if share is None else batch_of(task, arch, share * (limit - PROGRAM))
        network = [f"arch.{name}={value}" for name, value in arch.items()]
        ends = ["--until-step", "2", "--checkpoint-every", "1", "evaluation.every_commits=1", "--new"]
        words = ["run", "--run", f"r{number}", f"task={task}", *network, "data.train_rows=64", *ends]
        found = session(group, limit, [*words, f"batch_size={batch}"], place)
        refused = found["exit"] == 78
        outcome = "refused" if refused else "split" if found["parts"] > 1 else "whole"
        advised = re.search(r"(batch_size=\d+|task=\w+)[^.]* would fit", found["said"])
        good = found["oom_kills"] == 0 and (found["exit"] == 75 if not refused else bool(advised))
        row = {"task": task, "batch": batch, "share": share, "outcome": outcome, **found}
        yield {**row, "good": good, "said": found["said"] if refused or not good else ""}
        if refused and advised and advised[1].startswith("batch_size"):
            again = session(group, limit, [*words, advised[1]], place)
            yield {"task": task, "advised": advised[1], **again, "good": again["exit"] == 75 and not again["oom_kills"]}


def main() -> None:
    """One line for each session."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=4e9)
    parser.add_argument("--group", type=Path, default=own_group())
    given, bad = parser.parse_args(), 0
    with tempfile.TemporaryDirectory() as place:
        for row in sessions(given.group, int(given.limit), Path(place)):
            bad += not row["good"]
            print(json.dumps(row), flush=True)
    print(json.dumps({"bad": bad}))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
