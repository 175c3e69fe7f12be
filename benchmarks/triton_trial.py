"""Tries the installed Triton with the kernels for Hopper on this GPU, and prints its row for trm/kernels/tried.py.

    python benchmarks/triton_trial.py --out results

Proofs, one JSON line each: every kernel against float64 with equal bytes twice; milliseconds a step of three tasks, and
the same digest in two processes; a relay of two sessions equal to an unbroken one. Exit 1, and no row, if one fails. A
kernel that hangs is ended by a time limit. On one H200 all of them need about six minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import triton

sys.path[:0] = [str(Path(__file__).parent.parent)]

from relay.core.gpus import gpu_name  # noqa: E402
from trm.kernels.tried import UNTRIED, Tried, release  # noqa: E402

HERE = Path(__file__).resolve().parent
TASKS = ("sudoku", "sudoku_att", "arc")
LIMIT_S = 240
ERROR = re.compile(r"\b\d\.\de[-+]\d\d\b")


def script(name: str, *words: str) -> tuple[bool, str]:
    """Whether a benchmark ended well in time, with the kernels for Hopper, and its output."""
    command = [sys.executable, str(HERE / f"{name}.py"), *words]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {UNTRIED: "1", "PYTHONPATH": str(HERE.parent)},
            text=True,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return False, f"{name} took more than {late.timeout} s"
    sys.stderr.write(done.stderr[-3000:])
    return done.returncode == 0, done.stdout


def shown(proof: str, ok: bool, **facts: Any) -> bool:
    """Print one JSON line."""
    print(json.dumps({"proof": proof, "ok": ok, **facts}), flush=True)
    return ok


def errors() -> tuple[bool, float]:
    """Each kernel against float64; the largest relative error."""
    ok, text = script("kernel_errors")
    found = [float(number) for number in ERROR.findall(text)]
    ok = ok and bool(found) and "specialized" in text
    return shown("errors", ok, largest=max(found, default=None), kernels=len(text.splitlines()) - 2), max(
        found, default=0
    )


def steps(task: str, args: argparse.Namespace) -> tuple[bool, float]:
    """Milliseconds of a step, and one digest in two processes."""
    folder = args.out / task
    ok, _ = script(
        "step_time", "--task", task, "--steps", str(args.steps), "--rows", "fused", "--check", "--out", str(folder)
    )
    found = json.loads((folder / "step_time.json").read_text()) if ok else {"rows": []}
    row = next(iter(found["rows"]), {})
    same = found.get("same_bytes_in_two_processes", False)
    ok = ok and same and "specialized" in row.get("path", "")
    kept = {key: row.get(key) for key in ("ms", "ms_p10", "ms_p90", "n", "first_step_s", "path")}
    return shown(f"step of {task}", ok, same_digest_in_two_processes=same, **kept), row.get("ms") or 0.0


def main() -> None:
    """All proofs, then the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="generated", help="a CSV of 9x9 puzzles for the relay")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "results")))
    args = parser.parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        parser.exit(69, "triton_trial needs a Hopper card, and torch sees none here\n")
    began = time.monotonic()
    good, error = errors()
    times = {}
    for task in args.tasks:
        ok, times[task] = steps(task, args)
        good &= ok
    ok, text = script("exact_relay", args.train, "--task", "sudoku", "--steps", "40", "--sessions", "2")
    good &= shown("relay equals unbroken", ok, links=[line for line in text.splitlines() if "steps" in line])
    card = gpu_name({"gpu": torch.cuda.get_device_name()}) or "unknown"
    versions = release(triton.__version__), torch.__version__.partition("+")[0]
    row = Tried((9, 0), *versions, card, error, times["sudoku"], args.steps, "RECORD")
    shown(
        "all", good, triton=triton.__version__, seconds=round(time.monotonic() - began), row=repr(row) if good else None
    )
    sys.exit(not good)


if __name__ == "__main__":
    main()
