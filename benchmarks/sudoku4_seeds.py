"""How many unseen 4x4 puzzles a preset solves after training, seed by seed.

    python benchmarks/sudoku4_seeds.py --task sudoku4 --seeds 0 1 2 --steps 1600

One line a seed and evaluation: EMA weights on the 1,000 test puzzles, whose solution grids never occur in training.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from trm.presets import preset, target_steps
from trm.workload import TrmWorkload


def train(task: str, seed: int, steps: int, every: int, device: str) -> None:
    """Train one seed and print its accuracy every `every` steps."""
    config = preset(task).model_copy(update={"seed": seed})
    workload = TrmWorkload(config, Path("data"), device)
    workload.start()
    spent = 0.0
    while workload.step < steps:
        began = time.perf_counter()
        workload.advance(min(workload.step + every, steps), lambda: False, lambda _: None)
        spent += time.perf_counter() - began
        score = workload.evaluate("test", None)
        exact, cell = score["exact_accuracy"], score["cell_accuracy"]
        print(f"{task:12} {seed:4} {workload.step:6} {exact:8.2%} {cell:8.2%} {spent:8.1f}", flush=True)


def main() -> None:
    """Parse arguments and run the seeds one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="sudoku4")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="default: the preset's target")
    parser.add_argument("--every", type=int, default=400, help="steps between evaluations")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    print(f"{'task':12} {'seed':>4} {'step':>6} {'exact':>8} {'cell':>8} {'train s':>8}")
    for seed in chosen.seeds:
        train(chosen.task, seed, chosen.steps or target_steps(chosen.task), chosen.every, chosen.device)


if __name__ == "__main__":
    main()
