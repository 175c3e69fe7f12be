"""Whether `task=arc_small` learns its rules in minutes: trains some seeds and counts the test outputs by rule.

    python benchmarks/arc_small.py --seeds 0 1 2 [--together]

Each seed is a run of its own with the preset's settings, on the CPU. Two answers that need no model are counted as
well: the input itself, and the output that is commonest among the demonstrations of its task. Prints one JSON line a
seed; exit 1 unless at least RIGHT of the outputs are right, FAMILIES rules reach EACH, and no such answer EASY.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from participants import ROOT, Participant

sys.path.insert(0, str(ROOT))
from trm.data.arc.generate import RULES, TEST, subsets
from trm.data.arc.tasks import Pair, Task

RIGHT, FAMILIES, EACH, EASY = 0.90, 4, 0.70, 0.10

Answers = Callable[[Task, int, Pair], list[Any]]
"""What is answered for a task, the number of its test pair, and that pair, whose output must not be used."""


def share_by_rule(answers: Answers) -> dict[str, float]:
    """Of the test outputs of each rule, the share that is among the answers."""
    right, every = Counter[str](), Counter[str]()
    for task in subsets()[TEST]:
        rule = task.name.partition("-")[0]
        for number, pair in enumerate(task.tests):
            every[rule] += 1
            right[rule] += pair.output in [tuple(map(tuple, answer)) for answer in answers(task, number, pair)]
    return {rule: right[rule] / every[rule] for rule in RULES}


def commonest(task: Task, number: int, pair: Pair) -> list[Any]:
    return [Counter(shown.output for shown in task.demonstrations).most_common(1)[0][0]]


def learned(folder: Path, seed: int, more: list[str]) -> dict[str, Any]:
    """Train one seed to its target and evaluate the newest checkpoint, two attempts an output."""
    machine, submission = Participant(folder, f"seed{seed}"), folder / f"{seed}.json"
    began = time.monotonic()
    settings = ["task=arc_small", "device=cpu", *more]
    machine.call("run", "--account", "account_1", "--run", f"arc{seed}", "--new", f"seed={seed}", *settings)
    minutes = (time.monotonic() - began) / 60
    machine.call("evaluate", "--run", f"arc{seed}", *settings, "--out", str(submission), "--json")
    found = json.loads(submission.read_text())
    rules = share_by_rule(lambda task, number, pair: list(found[task.name][number].values()))
    return {"seed": seed, "minutes": round(minutes, 1), "right": sum(rules.values()) / len(rules), "rules": rules}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--together", action="store_true", help="all seeds at once: two cores for each")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="other settings than the preset's")
    args = parser.parse_args()
    easy = {
        "input": share_by_rule(lambda task, number, pair: [pair.input]),
        "commonest": share_by_rule(commonest),
    }
    shares = {name: sum(rules.values()) / len(rules) for name, rules in easy.items()}
    print(json.dumps({"without a model": shares}), flush=True)
    good = max(shares.values()) <= EASY
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(args.seeds) if args.together else 1) as pool:
        for found in pool.map(lambda seed: learned(Path(folder), seed, args.set), args.seeds):
            good &= found["right"] >= RIGHT and sum(share >= EACH for share in found["rules"].values()) >= FAMILIES
            print(json.dumps(found), flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
