"""Milliseconds a step when several GPUs share each batch, compared with one GPU, unsplit and in as many parts.

    python benchmarks/together.py --processes 2 --out results

Rows run one after another, each in fresh processes, on the same batches. Several processes must end at the digest of
one process that splits the batch into as many parts. Prints a table and writes together.json; exit 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from cases import SIZES, grids  # noqa: E402
from step_time import event_times  # noqa: E402

from relay.torch.device import settle  # noqa: E402
from relay.torch.fingerprint import fingerprint  # noqa: E402
from relay.torch.launch import is_follower, launched  # noqa: E402
from relay.torch.peers import meet  # noqa: E402
from relay.torch.snapshot import state_hash  # noqa: E402
from relay.torch.together import dismiss, follow  # noqa: E402
from trm.choosing import choose  # noqa: E402
from trm.presets import preset  # noqa: E402
from trm.together import LeadingStep, taken_over  # noqa: E402
from trm.train import Step, TrainState  # noqa: E402


def one_row(args: argparse.Namespace) -> dict[str, Any]:
    """Time steps in this process, the leader if there are several."""
    device, config = torch.device("cuda"), preset(args.task)
    peers = meet() if launched() > 1 else None
    settle(config.threads)
    step: Step = choose(device, config, SIZES).step(peers)
    step.parts = args.parts
    if peers is not None:
        step = LeadingStep(step, peers)
    data, state = grids().to(device), TrainState(config, SIZES, device)
    times = sorted(event_times(lambda: step(state, data.batch_at(0, state.step, config.batch_size)), args.steps, 4))
    return {
        "path": f"{step.name} batch={config.batch_size}{step.groups}",
        "n": args.steps,
        "ms": times[len(times) // 2],
        "ms_p10": times[len(times) // 10],
        "ms_p90": times[len(times) * 9 // 10],
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
        "digest": state_hash(state.canonical(), state.step, config.seed),
    }


def child(processes: int, parts: int, fused: bool, args: argparse.Namespace) -> dict[str, Any] | None:
    """One row in fresh processes; None if it fails, and then the end of its stderr is printed."""
    row = [__file__, "--row", "--task", args.task, "--steps", str(args.steps), "--parts", str(parts)]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "--"]
    command = [sys.executable, *(torchrun if processes > 1 else []), *row]
    environ = os.environ | {"TRM_FUSED": str(int(fused))}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{processes} processes, {parts} parts: failed\n{done.stderr[-3000:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(next(x for x in reversed(done.stdout.splitlines()) if x.startswith("{")))
    print(
        f"{processes:9} {parts:5} {found['ms']:8.2f} {found['ms_p10']:8.2f} {found['ms_p90']:8.2f} "
        f"{found['peak_gb']:8.1f}  {found['digest'][:12]}  {found['path']}",
        flush=True,
    )
    return found | {"processes": processes, "parts": parts}


def measure(args: argparse.Namespace) -> int:
    """All rows, the comparison, the JSON file; the exit code."""
    print(f"processes parts  ms/step      p10      p90  peak GB  digest        path ({args.task})")
    rows, same = [], []
    for fused in (True, False):
        alone, split, together = (
            child(n, k, fused, args) for n, k in ((1, 1), (1, args.processes), (args.processes, 1))
        )
        rows += [row for row in (alone, split, together) if row]
        same.append(bool(split and together and split["digest"] == together["digest"]))
        print(f"{args.processes} processes give the bytes of {args.processes} parts: {same[-1]}")
    args.out.mkdir(parents=True, exist_ok=True)
    document = {"environment": fingerprint(torch.device("cuda")), "rows": rows, "same_bytes": same}
    (args.out / "together.json").write_text(json.dumps(document, indent=1))
    return 0 if all(same) else 1


def main() -> None:
    """Parse arguments; exit without enough GPUs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="sudoku")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "results")))
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--parts", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.row and is_follower():
        follow(taken_over)
    elif args.row:
        print(json.dumps(one_row(args)), flush=True)
        if launched() > 1:
            dismiss()
    elif torch.cuda.device_count() < args.processes:
        parser.exit(69, f"together needs {args.processes} GPUs, and torch sees {torch.cuda.device_count()} here\n")
    else:
        sys.exit(measure(args))


if __name__ == "__main__":
    main()
