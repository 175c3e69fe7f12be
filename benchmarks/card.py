"""Whether training fits this card: predicted and measured peak memory of each way to compute a step, and the split.

    python benchmarks/card.py --out results

Sudoku at batch 768, each row in its own process: unsplit, and with memory capped (and the cap enforced) at --cap
gigabytes, which splits the batch as a session would. The split step is compared with the unsplit one over --steps
steps from the same weights and batches. "Within bfloat16 noise" means a difference comparable to that of
torch.compile's step from the plain one over the same steps, which is rounding too. Two processes with the same split
must end at the same digest. Prints a table (memory in GB = 10^9 bytes) and writes card.json; exit 1 if the split
disagrees or bytes differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from cases import SIZES, grids  # noqa: E402
from step_time import compile_model  # noqa: E402

from relay.torch.device import slow_bf16  # noqa: E402
from relay.torch.fingerprint import fingerprint  # noqa: E402
from relay.torch.memory import CAP, free_bytes  # noqa: E402
from relay.torch.snapshot import state_hash  # noqa: E402
from trm.cost import Method, fit  # noqa: E402
from trm.kernels.fast_step import FastStep, unavailable  # noqa: E402
from trm.presets import preset  # noqa: E402
from trm.train import EagerStep, Step, TrainState  # noqa: E402

METHODS: tuple[Method, ...] = ("eager", "compiled", "fused")
NOISE = 2.0
"""The split step may differ from the unsplit one this many times as much as torch.compile's step does."""


def one_row(method: Method, args: argparse.Namespace) -> dict[str, Any]:
    """Train some steps in this process; memory, losses, digest."""
    device, config = torch.device("cuda"), preset(args.task)
    torch.use_deterministic_algorithms(method != "compiled")
    torch.utils.deterministic.fill_uninitialized_memory = False
    found = fit(config, SIZES, method, free_bytes(device), slow_bf16(device))
    if found.remark:
        print(found.remark, file=sys.stderr)
    data, state = grids().to(device), TrainState(config, SIZES, device)
    step: Step = FastStep(parts=found.parts) if method == "fused" else EagerStep(found.parts)
    if method == "compiled":
        compile_model(state)
    losses, times = [], []
    for _ in range(args.steps):
        began = time.perf_counter()
        losses.append(step(state, data.batch_at(config.seed, state.step, config.batch_size))[5].item())
        times.append(time.perf_counter() - began)
    return {
        "method": method,
        "parts": found.parts,
        "free_gb": (found.free or 0) / 1e9,
        "predicted_gb": found.peak / 1e9,
        "allocated_gb": torch.cuda.max_memory_allocated() / 1e9,
        "reserved_gb": torch.cuda.max_memory_reserved() / 1e9,
        "used_gb": (torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]) / 1e9,
        "first_step_s": times[0],
        "ms": 1000 * sorted(times[1:])[len(times) // 2 - 1],
        "lm_loss": [loss / config.batch_size for loss in losses],
        "digest": state_hash(state.canonical(), state.step, config.seed),
    }


def child(method: Method, cap: float | None, args: argparse.Namespace) -> dict[str, Any] | None:
    """One row in a fresh process; None if it fails, and then the end of its stderr is printed."""
    environ = {key: value for key, value in os.environ.items() if key != CAP} | ({CAP: str(cap)} if cap else {})
    command = [sys.executable, __file__, "--row", method, "--task", args.task, "--steps", str(args.steps)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("MEMORY")]
    if done.returncode:
        print(f"{method}, cap {cap}: failed\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) | {"cap_gb": cap, "said": said}
    print(line(row), flush=True)
    return row


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    cap = f"{row['cap_gb']:g}" if row["cap_gb"] else "-"
    off = row["predicted_gb"] / row["allocated_gb"] - 1
    return (
        f"{row['method']:9} {cap:>5} {row['parts']:>5} {row['predicted_gb']:10.2f} {row['allocated_gb']:10.2f} "
        f"{row['reserved_gb']:9.2f} {off:+8.1%} {row['ms']:8.1f} {row['first_step_s']:7.1f}  {row['lm_loss'][-1]:.4f}"
    )


def difference(a: dict[str, Any], b: dict[str, Any]) -> tuple[float, float]:
    """Largest and mean |a - b| of the lm loss a row and step."""
    found = [abs(x - y) for x, y in zip(a["lm_loss"], b["lm_loss"], strict=True)]
    return max(found), sum(found) / len(found)


def judge(rows: dict[tuple[str, bool], dict[str, Any] | None], again: dict[str, Any] | None) -> dict[str, Any]:
    """Each split against the unsplit step of its method, and the digests of two processes."""
    found: dict[str, Any] = {}
    plain, compiled = rows.get(("eager", False)), rows.get(("compiled", False))
    scale = difference(plain, compiled)[0] if plain and compiled else None
    if scale is not None:
        print(f"lm loss, plain against compiled, both unsplit: at most {scale:.5f} in {len(plain['lm_loss'])} steps")
    for method in METHODS:
        whole, split = rows.get((method, False)), rows.get((method, True))
        if not whole or not split:
            continue
        most, mean = difference(whole, split)
        within = scale is not None and most <= NOISE * scale
        found[method] = {"most": most, "mean": mean, "scale": scale, "within_noise": within}
        verdict = "" if scale is None else f": {'within' if within else 'NOT within'} bfloat16 noise"
        print(
            f"lm loss, {method}, {split['parts']} parts against unsplit: at most {most:.5f}, mean {mean:.5f}{verdict}"
        )
    first = rows.get(("eager", True))
    if first and again:
        found["same_bytes"] = first["digest"] == again["digest"]
        print(f"two processes with the same split: same bytes {found['same_bytes']}")
    return found


def measure(args: argparse.Namespace) -> int:
    """All rows, the table, the JSON file; the exit code."""
    why_not = unavailable("cuda", preset(args.task).arch, SIZES)
    methods = [m for m in args.methods if m != "fused" or why_not is None]
    if why_not is not None:
        print(f"no fused step: {why_not}")
    free, total = torch.cuda.mem_get_info()
    print(f"{torch.cuda.get_device_name()}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free; torch {torch.__version__}")
    print("method     cap  parts predicted  allocated  reserved      off ms/step   1st s  last lm loss")
    rows = {(m, capped): child(m, args.cap if capped else None, args) for m in methods for capped in (False, True)}
    again = child("eager", args.cap, args) if "eager" in methods else None
    found = judge(rows, again)
    for text in sorted({text for row in rows.values() if row for text in row["said"]}):
        print(text)
    document = {
        "environment": fingerprint(torch.device("cuda")),
        "rows": [row for row in (*rows.values(), again) if row],
        "agreement": found,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "card.json").write_text(json.dumps(document, indent=1))
    good = all(value if key == "same_bytes" else value["within_noise"] for key, value in found.items())
    return 0 if good and all(rows.values()) else 1


def main() -> None:
    """Parse arguments; exit without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="sudoku")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cap", type=float, default=15.0, help="gigabytes (10^9 bytes)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "results")))
    parser.add_argument("--row", choices=METHODS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(69, "card measures GPUs, and torch sees none here\n")
    if args.row:
        print(json.dumps(one_row(args.row, args)))
        return
    sys.exit(measure(args))


if __name__ == "__main__":
    main()
