"""Rates of the model's matrix products that this GPU sustains for seconds: the lower limit of its step time.

    python benchmarks/product_rates.py --seconds 3

A card that multiplies for seconds reaches its power limit and lowers its clock, so a short run overstates the rate in
training. Rows: shape, TFLOP/s at first and held, milliseconds, watts, megahertz and picojoules an operation.
"""

from __future__ import annotations

import argparse
import subprocess
import threading
import time
from collections.abc import Callable
from statistics import mean, median

import torch

SHAPES = {
    "square": (8192, 8192, 8192),
    "gate-up, ARC": (175_872, 3072, 512),
    "its input's gradient": (175_872, 512, 3072),
    "down, ARC": (175_872, 512, 1536),
    "a weight's gradient": (3072, 512, 175_872),
    "gate-up, Sudoku": (74_496, 3072, 512),
}
"""Rows, columns, and the summed dimension."""
TOGETHER = 20
"""Products between two reads of the clock."""


def look() -> tuple[float, float]:
    """Watts and megahertz."""
    asked = ["nvidia-smi", "--query-gpu=power.draw,clocks.sm", "--format=csv,noheader,nounits", "-i", "0"]
    watts, clock = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split(",")
    return float(watts), float(clock)


def product(rows: int, columns: int, depth: int) -> Callable[[], object]:
    """A bfloat16 product of random data; the larger of rows and depth is outermost, as in training."""
    if depth > rows:
        a, b = torch.randn(depth, rows, device="cuda").bfloat16().T, torch.randn(depth, columns, device="cuda")
        b = b.bfloat16()
    else:
        a, b = torch.randn(rows, depth, device="cuda").bfloat16(), torch.randn(columns, depth, device="cuda")
        b = b.bfloat16().T
    out = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
    return lambda: torch.mm(a, b, out=out)


def held(run: Callable[[], object], seconds: float) -> tuple[list[float], list[tuple[float, float]]]:
    """Milliseconds of a call, group by group, and the readings of `look` during it."""
    over, seen, times = threading.Event(), [], []

    def watch() -> None:
        while not over.wait(0.5):
            seen.append(look())

    run()
    torch.cuda.synchronize()
    watcher, began = threading.Thread(target=watch), time.perf_counter()
    watcher.start()
    while time.perf_counter() - began < seconds:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(TOGETHER):
            run()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) / TOGETHER)
    over.set()
    watcher.join()
    return times, seen


def line(name: str, shape: tuple[int, int, int], times: list[float], seen: list[tuple[float, float]]) -> str:
    """A line of the table; the later half counts as held."""
    rows, columns, depth = shape
    operations = 2.0 * rows * columns * depth
    ms = median(times[len(times) // 2 :])
    watts, clock = (mean(values) for values in zip(*seen[len(seen) // 2 :], strict=True))
    return (
        f"{name:21} {rows:>7} x {columns:>4} x {depth:>6} {operations / times[0] / 1e9:7.0f}"
        f" {operations / ms / 1e9:7.0f} {ms:8.3f} {watts:6.0f} {clock:6.0f} {watts * ms / operations * 1e9:7.3f}"
    )


def main() -> None:
    """Parse arguments, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each product, 2 or more")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(69, "product_rates measures GPUs, and torch sees none here\n")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16, TFLOP/s at first and held")
    print(f"{'':47} {'first':>7} {'held':>7} {'ms':>8} {'W':>6} {'MHz':>6} {'pJ':>7}")
    for name, shape in SHAPES.items():
        print(line(name, shape, *held(product(*shape), args.seconds)), flush=True)


if __name__ == "__main__":
    main()
