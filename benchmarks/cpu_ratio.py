"""Milliseconds a CPU step takes in this tree and in another one, in turn, in fresh processes.

    git worktree add /tmp/before COMMIT
    python benchmarks/cpu_ratio.py /tmp/before --task sudoku4 --rounds 5

Each process trains the preset on made-up grids with the run's own number of threads and prints its median. The ratio
is that of the medians of all rounds, and its spread that of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CHILD = """
import sys, time, torch
from trm.model import Sizes
from trm.presets import preset
from trm.data.dataset import Dataset
from trm.train import EagerStep, TrainState
task, steps = sys.argv[1], int(sys.argv[2])
config = preset(task)
torch.set_num_threads(config.threads)
torch.set_deterministic_debug_mode('error')
grid = (torch.arange(16) // 4 * 4 + torch.arange(16) // 4 // 2 + torch.arange(16) % 4) % 4 + 2
labels = grid.to(torch.uint8).repeat(1000, 1)
shown = torch.rand(labels.shape, generator=torch.Generator().manual_seed(0)) < 0.4
data = Dataset(torch.where(shown, labels, 1), labels, 6)
state, step, times = TrainState(config, Sizes(16, 6, 1)), EagerStep(), []
for _ in range(steps):
    began = time.perf_counter()
    step(state, data.batch_at(config.seed, state.step, config.batch_size))
    times.append(time.perf_counter() - began)
print(1000 * sorted(times[5:])[len(times[5:]) // 2])
"""


def median_ms(tree: Path, args: argparse.Namespace) -> float:
    """Of one process."""
    command = [sys.executable, "-c", CHILD, args.task, str(args.steps)]
    done = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    """All rounds, the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("--task", default="sudoku4", choices=("sudoku4", "sudoku4_att"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rounds = [(median_ms(args.before, args), median_ms(HERE, args)) for _ in range(args.rounds)]
    for before, now in rounds:
        print(f"before {before:8.2f} ms   now {now:8.2f} ms   ratio {now / before:.3f}")
    before, now = (statistics.median(values) for values in zip(*rounds, strict=True))
    print(f"{args.task}: before {before:.2f} ms, now {now:.2f} ms, ratio {now / before:.3f} (n = {len(rounds)} rounds)")


if __name__ == "__main__":
    main()
