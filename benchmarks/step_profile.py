"""Time of a fused step by kernel: milliseconds and calls, by name.

    python benchmarks/step_profile.py sudoku_att --after 200

`--after` steps come first: after seconds of training the power limit slows a card, and a cool one is some percent
faster. `arc` takes ARC's shape on made-up grids (benchmarks/cases.py).
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import torch
from cases import case
from torch.profiler import ProfilerActivity, profile

from trm.kernels.fast_step import FastStep
from trm.train import TrainState

WIDTH = 90
"""Of a kernel's name: cuBLAS's and torch's are longer."""


def kernels(task: str, after: int, steps: int) -> dict[str, list[float]]:
    """Microseconds of each launch in `steps` steps, by kernel."""
    timed = case(task)
    batch_at, state, step = timed.batches(), TrainState(timed.config, timed.sizes, "cuda"), FastStep()
    for _ in range(after):
        step(state, batch_at(state.step))
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            step(state, batch_at(state.step))
        torch.cuda.synchronize()
    found = defaultdict(list)
    for event in seen.events() or ():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name].append(event.device_time)
    return found


def main() -> None:
    """Parse arguments, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", default="sudoku")
    parser.add_argument("--after", type=int, default=60)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(69, "step_profile measures GPUs, and torch sees none here\n")
    found = kernels(args.task, args.after, args.steps)
    total, launches = sum(map(sum, found.values())), sum(map(len, found.values()))
    print(f"{args.task}: {total / args.steps / 1000:.2f} ms of kernels a step, {launches / args.steps:.0f} launches")
    print(f"{'ms':>9} {'calls':>7} {'us a call':>10}  kernel")
    for name, times in sorted(found.items(), key=lambda item: -sum(item[1])):
        spent, calls = sum(times) / args.steps / 1000, len(times) / args.steps
        print(f"{spent:9.3f} {calls:7.1f} {sum(times) / len(times):10.1f}  {name[:WIDTH]}")


if __name__ == "__main__":
    main()
