"""One table of this machine: a step's time, rate, share of a product's and memory, a checkpoint's stall, start-up.

    python benchmarks/machine.py --train TRAIN.csv --out results

Runs step_time.py (each kind of step, the plain one included), checkpoint_stall.py and warm_start.py for each task, one
after another. Their output goes to standard error, their results to a folder each. Without a GPU it times the plain
step of sudoku4 and its checkpoints. A failed or unsupported measurement is a dash.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).parent.parent)]

from relay.core.gpus import gpu_name  # noqa: E402
from relay.torch.fingerprint import installed  # noqa: E402
from trm.cards import CPU, How, Row  # noqa: E402

HERE = Path(__file__).resolve().parent
ON_GPU, ON_CPU = ("sudoku", "sudoku_att", "arc"), ("sudoku4",)
HOW: dict[str, How] = {"fused": "portable", "blocks": "compiled", "plain": "plain"}
"""Steps that a session may take, and their names in trm/cards.py."""
HEADINGS = ("task", "step", "ms", "TFLOP/s", "share", "GiB", "to plain", "stall ms", "cold s", "warm s")
WIDTHS = (10, 9, 9, 8, 7, 6, 9, 9, 7, 7)


def results(script: str, out: Path, *words: str) -> dict[str, Any] | None:
    """The results of a benchmark, whose output goes to standard error; None if it wrote none."""
    done = subprocess.run([sys.executable, str(HERE / f"{script}.py"), *words, "--out", str(out)], stdout=sys.stderr)
    found = out / f"{script}.json"
    if done.returncode:
        print(f"{script} {' '.join(words)} ended with {done.returncode}", file=sys.stderr)
    return dict(json.loads(found.read_text())) if found.exists() else None


def start_up(found: dict[str, Any] | None) -> list[float | None]:
    """Seconds to the first step of the first cold and of the first warm session."""
    sessions = found["sessions"] if found else []
    phases = ("import_s", "data_s", "lease_s", "restore_s", "cache_s", "first_step_s")
    first = {session["kind"]: session["startup"] for session in reversed(sessions)}
    return [sum(first[kind].get(name, 0.0) for name in phases) if kind in first else None for kind in ("cold", "warm")]


def timed(task: str, folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each kind of step; without a GPU one row, with the milliseconds of the plain step."""
    if not torch.cuda.is_available():
        return [{"name": "plain"}]
    words = ("--task", task, "--steps", str(args.steps), "--rows", *HOW)
    found = results("step_time", folder, *words) or {"rows": []}
    return [row | {"ceiling": found["ceiling_tflops"], "tflop": found["step_tflop"]} for row in found["rows"]]


def rows(task: str, args: argparse.Namespace) -> list[list[Any]]:
    """The table's lines of a task; stall and start-up belong to a session's step, the first row."""
    folder, train = args.out / task, ["--train", args.train] if args.train and task != "sudoku4" else []
    taken = timed(task, folder, args)
    session = train or task == "sudoku4"
    steps = "20" if torch.cuda.is_available() else "3"
    words = ["--task", task, *train]
    stall = results("checkpoint_stall", folder, *words, "--count", "6") if session else None
    starts = start_up(results("warm_start", folder, *words, "--pairs", "1", "--steps", steps) if session else None)
    plain = next((row.get("ms") for row in taken if row["name"] == "plain"), None)
    lines = []
    for number, row in enumerate(taken):
        ms = row.get("ms", stall["ms"] if stall else None)
        rate = row["tflop"] / ms * 1000 if "tflop" in row else None
        own = [stall["stall_ms"] if stall else None, *starts] if number == 0 else [None] * 3
        share, ratio = (rate / row["ceiling"] if rate else None), (plain / ms if plain and ms else None)
        lines.append([task, row["name"], ms, rate, share, row.get("peak_gib"), ratio, *own])
    return lines


def to_paste(task: str, folder: Path) -> list[Row]:
    """Entries of ROWS in trm/cards.py from a task's results; the folder of their record is still to be filled in."""
    timed, stalled = folder / "step_time.json", folder / "checkpoint_stall.json"
    taken = json.loads(timed.read_text())["rows"] if timed.exists() else []
    if not torch.cuda.is_available() and stalled.exists():
        found = json.loads(stalled.read_text())
        taken = [{"name": "plain", "path": "", "ms": found["ms"], "n": found["steps"]}]
    card = gpu_name({"gpu": torch.cuda.get_device_name()}) if torch.cuda.is_available() else CPU
    versions = torch.__version__.partition("+")[0], installed("triton")
    return [
        Row(
            card or "unknown", task, "hopper" if "specialized" in row["path"] else HOW[row["name"]],
            round(row["ms"], 2), row["n"], *versions, "RECORD",
        )
        for row in taken
    ]  # fmt: skip


def shown(line: list[Any]) -> str:
    """A line of the table."""
    texts = ["-" if value is None else value if isinstance(value, str) else f"{value:.2f}" for value in line]
    return " ".join(f"{text:>{width}}" for text, width in zip(texts, WIDTHS, strict=True))


def main() -> None:
    """Parse arguments, print each task's lines as they come, write machine.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", help="a CSV of 9x9 puzzles, for checkpoints and start-up of the Sudoku tasks")
    parser.add_argument("--tasks", nargs="+", default=ON_GPU if torch.cuda.is_available() else ON_CPU)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    args.train = str(Path(args.train).resolve()) if args.train else None
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"{card}, torch {torch.__version__}\n{shown(list(HEADINGS))}", flush=True)
    found = []
    for task in args.tasks:
        for line in rows(task, args):
            print(shown(line), flush=True)
            found.append(dict(zip(HEADINGS, line, strict=True)))
    print("\nfor ROWS in trm/cards.py:")
    for task in args.tasks:
        print("\n".join(f"    {row!r}," for row in to_paste(task, args.out / task)))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "machine.json").write_text(json.dumps({"card": card, "torch": torch.__version__, "rows": found}))


if __name__ == "__main__":
    main()
