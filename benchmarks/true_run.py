"""A true run: the published Sudoku model relayed through sessions in separate processes, with its learning curve.

    python benchmarks/true_run.py TRAIN.csv TEST.csv --folder run --sessions 4 --minutes 5 --out results

Every session is another participant with its own home and caches. Every 500th checkpoint is kept, and evaluated on all
rows of TEST.csv with the averaged weights: on a second GPU during training if there is one, otherwise afterwards. A
later call with the same --folder continues with further participants. Writes curve.json: steps with their times,
losses (mean of the 500 steps before), accuracies, sessions with their start-up and how their links were certified.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from participants import Participant

RUN = "extreme"
STEP = re.compile(r"step ([\d,]+)/")
LOSS = re.compile(r"\bloss ([\d.]+)")


class Evaluator(threading.Thread):
    """Evaluates each kept checkpoint once, until `over` is set."""

    def __init__(self, participant: Participant, args: argparse.Namespace, points: dict[int, dict[str, float]]) -> None:
        super().__init__()
        self.participant, self.args, self.points = participant, args, points
        self.over = threading.Event()

    def run(self) -> None:
        """Look every few seconds; durable checkpoints are still evaluated after `over` is set."""
        while True:
            last = self.over.is_set()
            self.catch_up()
            if last:
                return
            self.over.wait(5)

    def catch_up(self) -> None:
        """Evaluate every durable checkpoint that has not been evaluated."""
        head = self.participant.status(RUN)["step"]
        for step in range(self.args.every, head + 1, self.args.every):
            if step not in self.points:
                words = ("evaluate", "--run", RUN, "--step", str(step), "--json", *settings(self.args))
                self.points[step] = json.loads(self.participant.call(*words))["metrics"]


def settings(args: argparse.Namespace) -> tuple[str, ...]:
    """Arguments of every command of this run."""
    return (f"task={args.task}", f"data.train={args.train}", f"data.test={args.test}")


def session(participant: Participant, number: int, args: argparse.Namespace, log: list[list[float]]) -> dict[str, Any]:
    """One session to its budget or the target; its steps with their time and loss go to `log`."""
    began, first = time.perf_counter(), None
    process = participant.start(
        *("run", "--account", f"account_{number}", "--run", RUN, "--new", "--target-steps", str(args.steps)),
        *("--budget-minutes", str(args.minutes), "--progress-seconds", "0", "--checkpoint-every", str(args.every)),
        *(f"checkpoint.keep_every={args.every}", "evaluation.every_commits=0", *settings(args)),
    )
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        now = time.perf_counter() - began
        step, loss = STEP.search(line), LOSS.search(line)
        if step and loss:
            first = first or now
            log.append([number, int(step[1].replace(",", "")), now, float(loss[1])])
        else:
            said.append(f"{now:7.1f} s  {line.rstrip()}")
    code, seconds = process.wait(), time.perf_counter() - began
    print(
        f"session {number}: exit {code}, {seconds:.1f} s, first report after {first or 0:.1f} s", *said[-6:], sep="\n  "
    )
    if code not in (0, 75):
        sys.exit("\n".join(said[-40:]))
    return {"account": f"account_{number}", "exit": code, "seconds": seconds, "first_report_s": first}


def losses(log: list[list[float]], every: int) -> dict[int, float]:
    """Mean over the steps up to each kept one; a report covers the steps since the one before."""
    by_step, before = {int(step): loss for _, step, _, loss in log}, 0
    sums: dict[int, list[float]] = {}
    for step in sorted(by_step):
        total = sums.setdefault(-(-step // every) * every, [0.0, 0.0])
        total[0] += (step - before) * by_step[step]
        total[1] += step - before
        before = step
    return {end: total / count for end, (total, count) in sums.items()}


def kept(path: Path) -> dict[str, Any]:
    """An earlier call's results."""
    if not path.exists():
        return {"sessions": [], "log": [], "points": {}}
    return dict(json.loads(path.read_text()))


def relay(args: argparse.Namespace) -> None:
    """All sessions of this call, the evaluations, curve.json."""
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    found = kept(folder / "curve.json")
    points = {int(step): value for step, value in found["points"].items()}
    beside = torch.cuda.device_count() > 1
    evaluator = Evaluator(Participant(folder, "judge", 1 if beside else None), args, points)
    if beside and found["sessions"]:
        evaluator.start()
    for _ in range(args.sessions):
        number = len(found["sessions"]) + 1
        gpu = 0 if beside else None
        found["sessions"].append(session(Participant(folder, f"machine{number}", gpu), number, args, found["log"]))
        if beside and not evaluator.is_alive():
            evaluator.start()
        save(args, found, points)
    evaluator.over.set()
    if evaluator.is_alive():
        evaluator.join()
    elif not args.later:
        evaluator.catch_up()
    judge = evaluator.participant
    found["links"] = judge.status(RUN)["links"]
    found["report"] = judge.call("report", "--run", RUN)
    print(found["report"])
    print(judge.call("verify", "--run", RUN))
    save(args, found, points)
    table(found)


def save(args: argparse.Namespace, found: dict[str, Any], points: dict[int, dict[str, float]]) -> None:
    """Write next to the run, for the next call, and into the results."""
    found["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    found["points"], found["losses"] = dict(points), losses(found["log"], args.every)
    args.out.mkdir(parents=True, exist_ok=True)
    for folder in (args.folder, args.out):
        (folder / "curve.json").write_text(json.dumps(found))


def table(found: dict[str, Any]) -> None:
    """One line a kept checkpoint."""
    points, means = found["points"], found["losses"]
    print(f"{'step':>6} {'lm loss':>8} {'test exact':>10} {'test cell':>9}")
    for step in sorted(points | means):
        metrics = points.get(step, {})
        shown = [metrics.get(name, float("nan")) for name in ("exact_accuracy", "cell_accuracy")]
        print(f"{step:6} {means.get(step, float('nan')):8.4f} {shown[0]:10.4f} {shown[1]:9.4f}")
    for link in found.get("links", []):
        print(f"{link['account']} steps {link['from_step']}-{link['to_step']}: {link['certified']}")


def main() -> None:
    """Parse arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=lambda text: str(Path(text).resolve()))
    parser.add_argument("test", type=lambda text: str(Path(text).resolve()))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--task", default="sudoku")
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--later", action="store_true", help="with one GPU: leave the evaluation to a later call")
    relay(parser.parse_args())


if __name__ == "__main__":
    main()
