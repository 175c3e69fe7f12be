"""Milliseconds of a training step on this machine: the plain step, two compiled ones and the fused step.

    python benchmarks/step_time.py --task sudoku --out results

`--task arc` takes the shape of ARC-AGI (16 + 900 positions, a table of 876,406 puzzles) on made-up grids.

`blocks` is the compiled step of a session (trm/compiled.py); `compiled` is the whole network as one graph, without
torch's deterministic mode. Each row runs in its own process, one after another, on the same batches: augmentation,
optimizers, EMA and metrics on, every cycle run. Prints the table of DESIGN section 8 for this machine and writes
step_time.json. The share is of the matrix-product rate measured in the same run. `--check` runs the fused step twice in
separate processes and compares digests. The batch is taken in the fewest parts that fit the card's memory, as in a
session. Losses of each two rows are compared over their common steps: the difference
of two equivalent implementations (compiled and plain) is the noise level for the fused step's difference.

`--upstream PATH`, a checkout of TinyRecursiveModels, adds the reference's own step, eager and compiled, from the same
weights on the same batches (benchmarks/upstream.py lists the stand-ins).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from cases import Case, case
from torch import Tensor

from relay.torch.device import settle, slow_bf16
from relay.torch.fingerprint import fingerprint
from relay.torch.memory import free_bytes
from relay.torch.snapshot import state_hash
from trm.compiled import CompiledStep, uncompilable
from trm.cost import Method, fit, step_flops
from trm.data.dataset import Batch
from trm.kernels.fast_step import FastStep, unavailable
from trm.train import EagerStep, Step, TrainState

ROWS = ("fused", "blocks", "compiled", "plain")
"""The fastest one first: a run that is cut short has it."""
UPSTREAM = ("upstream", "upstream-compiled")
EAGER = ("plain", "upstream")
METHODS: dict[str, Method] = {"fused": "fused", "blocks": "compiled", "compiled": "compiled", "plain": "eager"}
"""As memory is predicted."""
MATMUL = 8192
PLAIN_STEPS = 40
"""An eager step is slow and its time steady: more steps only serve the losses."""


def matmul_tflops() -> float:
    """Rate of a large bfloat16 product on random data: the ceiling of the table's last column."""
    a, b = (torch.randn(MATMUL, MATMUL, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times = median_ms(lambda: a @ b, 30)
    return float(2 * MATMUL**3 / times / 1e9)


def median_ms(run: Any, count: int, warmup: int = 3) -> float:
    """Median over `count` calls, by device events."""
    return sorted(event_times(run, count, warmup))[count // 2]


def event_times(run: Any, count: int, warmup: int) -> list[float]:
    """Milliseconds of each call."""
    for _ in range(warmup):
        run()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in itertools.pairwise(events)]


def compile_model(state: TrainState) -> None:
    """torch.compile for the network alone; its questions to the device have constant answers."""
    torch.compiler.assume_constant_result(slow_bf16)
    state.model.inner.compile()


def possible(names: list[str], timed: Case) -> list[str]:
    """Those that this card can compute; prints why it cannot compute the others."""
    without = {"fused": unavailable("cuda", timed.config.arch, timed.sizes)}
    without["blocks"] = without["compiled"] = uncompilable(torch.device("cuda"), timed.config)
    for name in names:
        if without.get(name):
            print(f"no row {name}: {without[name]}")
    return [name for name in names if not without.get(name)]


def parts_of(name: str, timed: Case) -> int:
    """Of the batch, in a session on this card. Raises TaskError if not even single rows fit."""
    device = torch.device("cuda")
    return fit(timed.config, timed.sizes, METHODS[name], free_bytes(device), slow_bf16(device)).parts


def stepper(name: str, state: TrainState, upstream: Path | None, parts: int) -> tuple[str, Callable[[Batch], Tensor]]:
    """The path of an implementation, and the function that takes its next step."""
    if name in UPSTREAM:
        from upstream import UpstreamStep  # next to this file; only these rows need it

        assert upstream is not None, "only requested with --upstream"
        theirs = UpstreamStep(upstream, state, compiled=name == "upstream-compiled")

        def take(batch: Batch) -> Tensor:
            state.step += 1
            return theirs(batch)

        return name, take
    kinds: dict[str, type[FastStep | EagerStep]] = {"fused": FastStep, "blocks": CompiledStep}
    step: Step = kinds.get(name, EagerStep)(parts)
    if name == "compiled":
        compile_model(state)
    if name == "blocks":
        settle(state.config.threads)  # as in a session: it decides which code is made
    return step.name, partial(step, state)


def one_row(name: str, timed: Case, steps: int, upstream: Path | None = None) -> dict[str, Any]:
    """Time one implementation in this process."""
    parts = 1 if name in UPSTREAM else parts_of(name, timed)
    config, batch_at, state = timed.config, timed.batches(), TrainState(timed.config, timed.sizes, "cuda")
    path, step = stepper(name, state, upstream, parts)
    losses: list[Tensor] = []

    def run() -> None:
        losses.append(step(batch_at(state.step)))

    began = time.perf_counter()
    run()
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    torch.cuda.reset_peak_memory_stats()
    times = sorted(event_times(run, steps, 4))
    return {
        "name": name,
        "path": path,
        "parts": parts,
        "n": steps,
        "ms": times[steps // 2],
        "ms_p10": times[steps // 10],
        "ms_p90": times[steps * 9 // 10],
        "first_step_s": first,
        "peak_gib": torch.cuda.max_memory_reserved() / 2**30,
        "lm_loss": (torch.stack(losses)[:, 5] / config.batch_size).tolist(),
        "digest": None if name in UPSTREAM else state_hash(state.canonical(), state.step, config.seed),
    }


def child(name: str, args: argparse.Namespace) -> dict[str, Any] | None:
    """Run one row in a fresh process; None if it fails, and then the end of its stderr is printed."""
    steps = min(args.steps, args.plain_steps) if name in EAGER else args.steps
    command = [sys.executable, __file__, "--row", name, "--task", args.task, "--steps", str(steps)]
    command += ["--upstream", str(args.upstream)] if args.upstream else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


HEADINGS = f"{'step':17} {'ms':>8} {'p10':>8} {'p90':>8} {'TFLOP/s':>8} {'share':>6} {'GiB':>6} {'1st s':>6}"


def line(row: dict[str, Any], tflop: float, ceiling: float) -> str:
    """Of the table."""
    rate = tflop / row["ms"] * 1000
    return (
        f"{row['name']:17} {row['ms']:8.2f} {row['ms_p10']:8.2f} {row['ms_p90']:8.2f} {rate:8.0f}"
        f" {rate / ceiling:6.1%} {row['peak_gib']:6.1f} {row['first_step_s']:6.1f}"
    )


def ratios(rows: list[dict[str, Any]]) -> list[str]:
    """How the others compare with the compiled plain model, if that was timed."""
    base = next((row["ms"] for row in rows if row["name"] == "compiled"), None)
    others = [row for row in rows if row["name"] != "compiled"]
    return (
        [] if base is None else [f"{row['name']}: {base / row['ms']:.2f} times as fast as compiled" for row in others]
    )


def compare_losses(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By pair of rows: mean and largest difference of the lm loss over their common steps, and the number of these."""
    found = {}
    for one, other in itertools.combinations(reversed(rows), 2):
        gaps = [abs(a - b) for a, b in zip(one["lm_loss"], other["lm_loss"], strict=False)]
        if gaps:
            pair = f"{one['name']} - {other['name']}"
            found[pair] = {"mean": sum(gaps) / len(gaps), "largest": max(gaps), "steps": len(gaps)}
    return found


def measure(args: argparse.Namespace) -> None:
    """All rows: the table and the JSON file."""
    timed = case(args.task)
    config, sizes = timed.config, timed.sizes
    names = possible(args.rows, timed) + list(UPSTREAM if args.upstream else ())
    ceiling, tflop = matmul_tflops(), step_flops(config, sizes) / 1e12
    torch.cuda.empty_cache()  # the rows' processes need the memory
    print(
        f"{args.task}, batch {config.batch_size}, {tflop:.2f} TFLOP a step; {MATMUL}^3 product: {ceiling:.0f} TFLOP/s"
    )
    print(HEADINGS, flush=True)
    rows: list[dict[str, Any]] = []
    document = {"environment": fingerprint(torch.device("cuda")), "ceiling_tflops": ceiling}
    document |= {"step_tflop": tflop, "rows": rows}
    document["loss_difference"] = {}
    for name in names:
        row = child(name, args)
        if row is None:
            continue
        rows.append(row)
        print(line(row, tflop, ceiling), flush=True)
        document["loss_difference"] = compare_losses(rows)
        write(args.out, document)
    for text in ratios(rows):
        print(text)
    for pair, gap in document["loss_difference"].items():
        print(f"lm loss, |{pair}|: mean {gap['mean']:.4f}, largest {gap['largest']:.4f}, {gap['steps']} steps")
    if args.check and "fused" in names:
        again = child("fused", args)
        fused = next((row["digest"] for row in rows if row["name"] == "fused"), None)
        document["same_bytes_in_two_processes"] = again is not None and again["digest"] == fused
        print(f"same bytes in two processes: {document['same_bytes_in_two_processes']}")
        write(args.out, document)


def write(out: Path, document: dict[str, Any]) -> None:
    """Write after each row, so that a run that is cut short leaves its results."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "step_time.json").write_text(json.dumps(document, indent=1))


def main() -> None:
    """Parse arguments; exit without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="sudoku")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--plain-steps", type=int, default=PLAIN_STEPS, help="of rows that are not compiled, at most")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "results")))
    parser.add_argument("--upstream", type=Path, help="a checkout of TinyRecursiveModels, timed too")
    parser.add_argument("--row", choices=(*ROWS, *UPSTREAM), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(69, "step_time measures GPUs, and torch sees none here\n")
    if args.row:
        print(json.dumps(one_row(args.row, case(args.task), args.steps, args.upstream)))
    else:
        measure(args)


if __name__ == "__main__":
    main()
