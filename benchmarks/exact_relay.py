"""Sessions in separate processes against one unbroken session, through the step this machine takes by default.

    python benchmarks/exact_relay.py TRAIN.csv --task sudoku --steps 60 --sessions 3

TRAIN.csv may be `generated`. TRM_STEP=compiled takes the compiled step, also on a CPU.

Prints every link's certificate and both state hashes; exit 1 unless they are equal and every link is exact.

`--processes 2` takes two GPUs for every session, and one GPU for a further one at the end, whose link
must not be exact.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from participants import Participant


def train(participant: Participant, run: str, account: int, target: int, args: argparse.Namespace) -> None:
    """One session to `target`."""
    data = args.train if args.train == "generated" else str(Path(args.train).resolve())
    participant.call(
        *("run", "--account", f"account_{account}", "--run", run, "--new", "--target-steps", str(target)),
        *("--checkpoint-every", str(args.steps), f"task={args.task}", f"data.train={data}", f"data.test={data}"),
        *("evaluation.every_commits=0", *args.set),
    )


def relayed(folder: Path, args: argparse.Namespace) -> None:
    """`--sessions` sessions, each on a machine of its own."""
    for turn in range(1, args.sessions + 1):
        machine = Participant(folder, f"relay{turn}", processes=args.processes)
        train(machine, "relayed", turn, turn * args.steps // args.sessions, args)


def alone_at_last(folder: Path, args: argparse.Namespace) -> str:
    """One GPU continues from a state that several GPUs have trained: the label of its link."""
    train(Participant(folder, "last"), "relayed", 8, args.steps + 5, args)
    return str(Participant(folder, "last").status("relayed")["links"][-1]["certified"])


def main() -> None:
    """Both runs side by side, then the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("--task", default="sudoku")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="GPUs that share a session")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further settings of the run")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="exact-relay-") as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        unbroken = pool.submit(
            train, Participant(folder, "alone", processes=args.processes), "unbroken", 9, args.steps, args
        )
        relayed(folder, args)
        unbroken.result()
        found = {run: Participant(folder, "alone").status(run) for run in ("relayed", "unbroken")}
        further = alone_at_last(folder, args) if args.processes > 1 else None
    for link in found["relayed"]["links"]:
        print(f"{link['account']} steps {link['from_step']}-{link['to_step']}: {link['certified']}")
    hashes = {run: status["head"]["state_hash"] for run, status in found.items()}
    print(f"path {found['relayed']['head'].get('path')}\nrelayed  {hashes['relayed']}\nunbroken {hashes['unbroken']}")
    if further is not None:
        print(f"then one GPU alone: {further}")
    links = {link["certified"] for link in found["relayed"]["links"][1:]}
    sys.exit(len(set(hashes.values())) != 1 or links != {"exact"} or further == "exact")


if __name__ == "__main__":
    main()
