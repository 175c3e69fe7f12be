"""The sweep of recursions (`tn_sweep`) at 5,000 steps, seed 0, in slices by several accounts.

    python benchmarks/tn_sweep.py TRAIN.csv TEST.csv --account ana --minutes 8

Each call trains for some minutes as one account, and goes on where the last call stopped: the runs are in FOLDER. Two
accounts may train at once, each on a GPU of its own (CUDA_VISIBLE_DEVICES).
It writes report.json, report.txt, loss.svg, accuracy.svg and pace.json into OUT. Exit codes are those of `study run`:
75 more to do, 73 others hold what is left, 0 done.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STUDY = "trm_scaling"
SHORT = ("--seeds", "0", "--steps", "5000")
REFERENCE = {"test/exact_accuracy": 0.0425, "test/cell_accuracy": 0.6901, "lm_loss": 0.7411}
"""The reference implementation at 5,000 steps, n = 1: the baseline should be near it."""


def relay(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the program, with its store in the folder; its lines for people go to stderr."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "RELAY_STORE": str(folder / "store"), "RELAY_EPHEMERAL": "1"}
    command = [sys.executable, "-m", "relay.app.cli", *words]
    return subprocess.run(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True)


def document(folder: Path, *words: str) -> dict[str, Any]:
    """The document of a command that must succeed."""
    done = relay(folder, *words, "--json")
    done.check_returncode()
    return dict(json.loads(done.stdout))


def pace(slices: list[dict[str, Any]], listed: dict[str, Any]) -> list[dict[str, Any]]:
    """Milliseconds of a step by experiment: measured by these sessions, and predicted from FLOPs or earlier records."""
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for session in (one for each in slices for one in each["sessions"]):
        if session["train_s"] and session["durable_step"] is not None:
            spent[session["experiment"]][0] += session["train_s"]
            spent[session["experiment"]][1] += session["durable_step"] - session["from_step"]
    rows = []
    for row in listed["experiments"]:
        seconds, steps = spent.get(row["experiment"], (0.0, 0.0))
        if steps and "H200" in row["hours"]:
            ms, predicted = 1000 * seconds / steps, 3.6e6 * row["hours"]["H200"] / row["steps"]
            rows.append({"experiment": row["experiment"], "ms": ms, "predicted": predicted, "ratio": ms / predicted})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--account", default="ana")
    parser.add_argument(
        "--experiments", nargs="+", default=["e1_1_baseline", "tn_sweep"], help="or points of the sweep"
    )
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--folder", type=Path, default=Path("sync/tn_sweep"), help="it stays between the calls")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "results")))
    parser.add_argument("--setting", action="append", default=[], help="more settings of the sessions, KEY=VALUE")
    args = parser.parse_args()
    folder, out, names = args.folder.absolute(), args.out.absolute(), (STUDY, *args.experiments)
    for path in (folder, out):
        path.mkdir(parents=True, exist_ok=True)
    first = folder / "listed.json"
    if not first.exists():
        first.write_text(json.dumps(document(folder, "study", "list", *names, *SHORT)))
    rows = len(args.train.read_text().splitlines()) - 1
    data = (f"data.train={args.train.absolute()}", f"data.test={args.test.absolute()}", f"data.train_rows={rows}")
    done = relay(
        folder,
        *("study", "run", *names, *SHORT, *data, "checkpoint.every_steps=500", *args.setting),
        *("--account", args.account, "--budget-minutes", str(args.minutes), "--json"),
    )
    print(f"a slice as {args.account}: exit {done.returncode}", flush=True)
    if done.returncode not in (0, 73, 75):
        sys.exit(done.returncode)
    (folder / f"slice-{len(list(folder.glob('slice-*.json')))}-{args.account}.json").write_text(done.stdout)
    slices = [json.loads(path.read_text()) for path in sorted(folder.glob("slice-*.json"))]
    listed = json.loads(first.read_text())
    paced = pace(slices, listed)
    (out / "pace.json").write_text(json.dumps(paced, indent=1))
    for row in paced:
        print(
            f"{row['experiment']:16} {row['ms']:7.1f} ms, predicted {row['predicted']:7.1f}, ratio {row['ratio']:.2f}"
        )
    for metric in REFERENCE:
        report = document(folder, "study", "report", *names, *SHORT, *data, "--metric", metric)
        (out / f"report_{metric.replace('/', '_')}.json").write_text(json.dumps(report, indent=1))
        for row in report["rows"]:
            if row["mean"] is not None:
                beside = f", reference {REFERENCE[metric]}" if row["experiment"] == "e1_1_baseline" else ""
                print(f"{metric:20} {row['experiment']:16} {row['mean']:.4f} (n = {row['n']}){beside}")
    (out / "report.txt").write_text(relay(folder, "study", "report", *names, *SHORT, *data).stdout)
    for metric, name in (("lm_loss", "loss.svg"), ("accuracy", "accuracy.svg")):
        relay(folder, "study", "plot", *names, *SHORT, *data, "--metric", metric, "--out", str(out / name))
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
