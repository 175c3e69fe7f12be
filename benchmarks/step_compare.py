"""Runs the fused steps of several checkouts in turn on one GPU: which is faster, and are their bytes equal?

    python benchmarks/step_compare.py ../before . --task sudoku_att --rounds 4 --steps 20

Each checkout (a folder with `trm` in it) has its own process. All are ready before the first round, so that they meet
the same temperature, clock and power limit; cards differ by some percent, so compare only numbers of one call. Prints
medians, the difference to the first, and the state's digest, which is equal if the bytes are.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

import torch

HERE = Path(__file__).resolve().parent
SETTLING = 2
"""Steps of a turn that do not count, after the card's switch from another process."""


def child(task: str) -> None:
    """For each line of standard input, take that many steps and print their milliseconds; then print the digest."""
    from cases import case  # from this checkout; the step comes from the compared one

    from relay.torch.snapshot import state_hash
    from trm.kernels.fast_step import FastStep
    from trm.train import TrainState

    timed = case(task)
    batch_at, state, step = timed.batches(), TrainState(timed.config, timed.sizes, "cuda"), FastStep()
    step(state, batch_at(state.step))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print("ready", flush=True)
    for asked in sys.stdin:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(int(asked) + 1)]
        events[0].record()
        for event in events[1:]:
            step(state, batch_at(state.step))
            event.record()
        torch.cuda.synchronize()
        print(*(a.elapsed_time(b) for a, b in itertools.pairwise(events)), flush=True)
    print(state_hash(state.canonical(), state.step, timed.config.seed), flush=True)


class Contender:
    """One checkout's process."""

    def __init__(self, checkout: Path, task: str, caches: Path) -> None:
        self.checkout, self.times = checkout, list[float]()
        path = os.pathsep.join([str(checkout.resolve()), str(HERE), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-u", __file__, "--child", task], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "TRITON_CACHE_DIR": str(caches)},
        )  # fmt: skip

    def answer(self) -> list[str]:
        """The fields of its next line; exits if the process has ended."""
        assert self.process.stdout is not None, "it is a pipe"
        words = self.process.stdout.readline().split()
        return words or sys.exit(f"{self.checkout}: ended with {self.process.wait()}")

    def turn(self, steps: int) -> list[float]:
        """Milliseconds of the next steps."""
        assert self.process.stdin is not None, "it is a pipe"
        print(steps, file=self.process.stdin, flush=True)
        return [float(word) for word in self.answer()]

    def digest(self) -> str:
        """Digest of its final state."""
        assert self.process.stdin is not None, "it is a pipe"
        self.process.stdin.close()
        return self.answer()[0]


def orders(count: int, rounds: int) -> Iterator[int]:
    """The next contender: another one is first in each round."""
    return ((first + place) % count for first in range(rounds) for place in range(count))


def compare(checkouts: list[Path], args: argparse.Namespace) -> None:
    """All rounds, then the table."""
    with tempfile.TemporaryDirectory(prefix="step-compare-") as caches:
        contenders = [Contender(one, args.task, Path(caches) / str(i)) for i, one in enumerate(checkouts)]
        for contender in contenders:
            contender.answer()
            contender.turn(10)
        for number in orders(len(contenders), args.rounds):
            contenders[number].times += contenders[number].turn(args.steps)[SETTLING:]
        base = median(contenders[0].times)
        print(f"{args.task} on {torch.cuda.get_device_name()}, torch {torch.__version__}: ms a step, in turn")
        for one in contenders:
            times = sorted(one.times)
            low, high = times[len(times) // 10], times[len(times) * 9 // 10]
            print(
                f"{one.checkout!s:24} {median(times):8.3f} ({low:.2f} to {high:.2f}), mean {mean(times):.3f}, n"
                f" {len(times)}, {median(times) - base:+.3f}, {one.digest()[:16]}",
                flush=True,
            )


def main() -> None:
    """Parse arguments; exit without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, help="folders with trm in them; the first is the base")
    parser.add_argument("--task", default="sudoku")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20, help=f"of a turn; the first {SETTLING} do not count")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(69, "step_compare measures GPUs, and torch sees none here\n")
    if args.child:
        child(args.child)
    elif len(args.checkouts) < 2:
        parser.exit(64, "step_compare needs two checkouts or more\n")
    else:
        compare(args.checkouts, args)


if __name__ == "__main__":
    main()
