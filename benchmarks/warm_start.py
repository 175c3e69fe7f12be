"""Cold and warm starts of real sessions: each a fresh process with its own machine folder, all over one store.

    python benchmarks/warm_start.py --task sudoku --train train.csv --pairs 2

In each pair, the first session starts with an empty cache, and the second loads the first one's kernels from the
store. Each pair uses a new key, so that every first session is cold. Prints the parts of the time to the first
optimizer step, and writes them as JSON. Without --train it takes generated puzzles, which needs no network. Exit 1
unless every session ends well, each second one found all kernels (if any are compiled), and each handoff is exact.
"""

from __future__ import annotations

import argparse
import json
import platform
import secrets
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from participants import Participant

ROW = ("import_s", "data_s", "lease_s", "restore_s", "cache_s", "first_step_s", "compile_s", "capture_s")
COUNTS = ("kernels_loaded", "kernels_compiled")


@dataclass(frozen=True)
class Machine(Participant):
    """A participant that allows compiled code signed with `key`."""

    key: str = ""

    def environment(self) -> dict[str, str]:
        """The participant's environment with the switch and the key."""
        return super().environment() | {"RELAY_CACHE": "1", "RELAY_CACHE_KEY": self.key}


def session(machine: Machine, turn: int, args: argparse.Namespace) -> dict[str, Any]:
    """One session of `--steps` steps; its startup, and its messages about the cache."""
    data = () if args.train is None else (f"data.train={args.train}", f"data.test={args.train}")
    process = machine.start(
        *("run", "--run", "warm", "--account", f"account_{turn}", "--new", "--json"),
        *("--target-steps", str(turn * args.steps), f"task={args.task}", "evaluation.every_commits=0"),
        *(f"data_dir={machine.folder / 'data'}", *data, *args.set),
    )
    out, err = process.communicate()
    if process.returncode != 0:
        sys.exit(f"session {turn} ended with {process.returncode}:\n{err[-3000:]}{out[-1000:]}")
    found = json.loads(out)
    cache = [line.partition("Compile cache: ")[2] for line in err.splitlines() if "Compile cache: " in line]
    return {"startup": found["startup"], "certified": found["certified"], "told": cache, "json": found}


def total(startup: dict[str, float]) -> float:
    """Seconds from process start to the end of the first step."""
    phases = ("import_s", "data_s", "lease_s", "restore_s", "cache_s", "first_step_s")
    return sum(startup.get(name, 0.0) for name in phases)


def pairs(folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Cold, warm, cold, warm, ... of one run, after one session that only makes data and a first checkpoint."""
    sessions = [session(Machine(folder, "begin", key=secrets.token_hex(32)), 1, args) | {"kind": "begin"}]
    for number in range(args.pairs):
        key = secrets.token_hex(32)
        for kind in ("cold", "warm"):
            turn = len(sessions) + 1
            done = session(Machine(folder, f"{kind}{number}", key=key), turn, args) | {"kind": kind}
            sessions.append(done)
            show(done)
    return sessions


def show(done: dict[str, Any]) -> None:
    """One session."""
    startup = done["startup"]
    seconds = "  ".join(f"{name.removesuffix('_s')} {startup[name]:.2f}" for name in ROW if name in startup)
    counts = "  ".join(f"{name} {startup[name]}" for name in COUNTS if name in startup)
    print(f"{done['kind']:5} {total(startup):6.2f} s to the first step: {seconds}  {counts}  {done['certified']}")
    for line in done["told"]:
        print(f"      {line}")


def table(sessions: list[dict[str, Any]]) -> None:
    """Medians, cold next to warm."""
    kinds = {kind: [s["startup"] for s in sessions if s["kind"] == kind] for kind in ("cold", "warm")}
    print(f"\n{'seconds (median)':18}" + "".join(f"{kind:>9}" for kind in kinds))
    for name in (*ROW, *COUNTS):
        values = [[s[name] for s in startups if name in s] for startups in kinds.values()]
        if any(values):
            print(f"{name:18}" + "".join(f"{statistics.median(v):9.2f}" if v else f"{'':9}" for v in values))
    totals = [statistics.median(map(total, startups)) for startups in kinds.values()]
    print(f"{'to the first step':18}" + "".join(f"{value:9.2f}" for value in totals))


def faults(sessions: list[dict[str, Any]]) -> list[str]:
    """All differences from the expected result."""
    wrong = [f"{s['kind']}: the handoff is {s['certified']}" for s in sessions[1:] if s["certified"] != "exact"]
    for s in sessions[1:]:
        if "kernels_compiled" not in s["startup"]:
            continue
        compiled, found = s["startup"]["kernels_compiled"], any(line.startswith("hit") for line in s["told"])
        if found != (s["kind"] == "warm") or (compiled == 0) != (s["kind"] == "warm"):
            wrong.append(f"{s['kind']}: {compiled} kernels compiled; {s['told']}")
    return wrong


def main() -> None:
    """Parse arguments, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="sudoku")
    parser.add_argument("--train", type=lambda text: str(Path(text).resolve()), help="a CSV file; else generated")
    parser.add_argument("--steps", type=int, default=20, help="of each session")
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further settings of the run")
    parser.add_argument("--out", type=Path, default=Path("results"))
    args = parser.parse_args()
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{card}, torch {torch.__version__}, python {platform.python_version()}, {args.pairs} pairs, {args.task}")
    with tempfile.TemporaryDirectory(prefix="warm-start-") as name:
        sessions = pairs(Path(name), args)
    table(sessions)
    wrong = faults(sessions)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "warm_start.json").write_text(json.dumps({"card": card, "sessions": sessions, "faults": wrong}))
    print("\n".join(wrong) or "Every warm start found all its kernels; every handoff is exact.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
