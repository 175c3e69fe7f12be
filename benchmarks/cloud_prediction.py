"""Predicts step times on this GPU from two measured tasks, then measures others: is the table of `cloud list` right?

    python benchmarks/cloud_prediction.py predict --out docs/records/DATE_cloud_gpu       measures two, predicts: 2 min
    python benchmarks/cloud_prediction.py measure --out docs/records/DATE_cloud_gpu       measures the others: 3 min
    python benchmarks/cloud_prediction.py session --out docs/records/DATE_cloud_gpu --price 3.5 --train TEXT   5 min

`predict` writes prediction.json, which should be committed before `measure`; `measure` refuses to run without it, and
writes measured.json (with the digest of that file) and rates.json, which benchmarks/rates.py reads. Within 20 % is
good. `session` runs the recipe for one GPU of this machine with task=lm_fast for four minutes, and compares its report
with the estimate; --train names a text where the hub cannot be reached.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

from relay.app.cloud import machines, prices  # noqa: E402
from relay.app.cloud.estimates import Tables, Work, estimate  # noqa: E402
from relay.app.cloud.machines import Machine  # noqa: E402
from relay.app.cloud.rates import Rate, Rates  # noqa: E402
from relay.app.models.registry import MODELS  # noqa: E402

BASE, OTHERS = ("sudoku", "lm_small"), ("sudoku_att", "lm", "lm_fast")
"""Whose steps are measured first, and whose are predicted from them."""
STEPS = {"lm_fast": 10, "lm": 30, "lm_small": 60}
"""Measured steps; 60 of the others."""
GOOD = 0.2


def work(task: str) -> Work:
    """The task's preset, without what only a session needs."""
    plugin = MODELS.of_task(task)
    config = plugin.preset(task)
    return Work(task, plugin, config, plugin.target(config), 500, 10.0)


def prediction(base: list[Rate], machine: Machine) -> dict[str, Any]:
    """The file's content: what the base rates say of the other tasks on one GPU of a machine."""
    tables = Tables(machines.shipped(), prices.shipped(), Rates(rates=tuple(base)))
    rows = []
    for task in OTHERS:
        found = estimate(work(task), machine, tables)
        split = {"rows": found.split.rows, "parts": found.split.accumulation, "memory_gb": found.split.memory / 1e9}
        rows.append({"task": task, "step_flops": found.work.flops, "step_s": found.step.document(), **split})
    return {
        "schema": "relay.cloud-prediction/1",
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.name,
        "base": [one.model_dump(mode="json") for one in base],
        "predictions": rows,
    }


def compared(predicted: dict[str, Any], measured: list[Rate]) -> list[dict[str, Any]]:
    """Each prediction next to what was measured."""
    ms = {one.task: one.ms for one in measured}
    rows = []
    for row in predicted["predictions"]:
        low, high = 1000 * row["step_s"]["low"], 1000 * row["step_s"]["high"]
        ratio = (low + high) / 2 / ms[row["task"]]
        rows.append(
            {
                "task": row["task"],
                "predicted_ms": [low, high],
                "measured_ms": ms[row["task"]],
                "predicted_over_measured": ratio,
                "within_20_percent": abs(ratio - 1) <= GOOD,
            }
        )
    return rows


def timed(task: str, card: str, record: str) -> Rate:
    """Steps of a task on this GPU, as a session computes them."""
    import torch
    import triton

    steps = STEPS.get(task, 60)
    if task.startswith("lm"):
        from lm_gpu import of, trained

        ms, method = trained(of(task), steps)[1]["step_ms"], "compiled"
    else:
        words = [sys.executable, str(ROOT / "benchmarks" / "step_time.py"), "--row", "fused", "--task", task]
        done = subprocess.run([*words, "--steps", str(steps)], check=True, capture_output=True, text=True)
        row = json.loads(done.stdout.splitlines()[-1])
        ms, method = row["ms"], "hopper" if "specialized" in row["path"] else "portable"
    about = {"torch": torch.__version__.partition("+")[0], "triton": triton.__version__, "record": record}
    tflop = round(work(task).flops / 1e12, 4)
    return Rate(task=task, card=card, method=method, ms=round(ms, 3), step_tflop=tflop, n=steps, **about)


def here() -> Machine:
    """One GPU of this machine."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here")
    name = torch.cuda.get_device_name()
    card = machines.shipped().card(name)
    if card is None:
        raise SystemExit(f"{name} is not in relay/app/data/machines.yaml")
    return Machine(card, 1)


def predict(args: argparse.Namespace) -> None:
    """Measure the base, or read it, and write prediction.json."""
    if args.base:
        base = [Rate.model_validate(row) for row in json.loads(args.base.read_text())]
        machine = Machine(next(card for card in machines.shipped().cards if card.name == base[0].card), 1)
    else:
        machine = here()
        base = [timed(task, machine.card.name, args.out.name) for task in BASE]
    write(args.out / "prediction.json", prediction(base, machine))


def measure(args: argparse.Namespace) -> None:
    """Measure the others, and write measured.json and rates.json."""
    data = (args.out / "prediction.json").read_bytes()
    predicted, machine = json.loads(data), here()
    if predicted["machine"] != machine.name:
        raise SystemExit(f"the prediction is for {predicted['machine']}, and this is {machine.name}")
    found = [timed(task, machine.card.name, args.out.name) for task in OTHERS]
    rows = compared(predicted, found)
    about = {"schema": "relay.cloud-measured/1", "prediction_sha256": hashlib.sha256(data).hexdigest()}
    write(args.out / "measured.json", {**about, "rates": [one.model_dump(mode="json") for one in found], "rows": rows})
    write(args.out / "rates.json", [*predicted["base"], *(one.model_dump(mode="json") for one in found)])
    for row in rows:
        print(f"{row['task']}: {row['predicted_over_measured']:.2f} of the measured {row['measured_ms']:.4g} ms")


def session(args: argparse.Namespace) -> None:
    """Run the recipe for one GPU of this machine for four minutes; its report next to the estimate, and its cost."""
    machine, folder = here(), Path(tempfile.mkdtemp(prefix="recipe"))
    words = ["fast", f"data.train={args.train.absolute()}"] if args.train else ["fast"]
    store = folder / "store"
    environ = {**os.environ, "RELAY_STORE": store.as_uri(), "ACCOUNT_ID": "ana", "RELAY_BUDGET_MINUTES": "4"}
    command = [sys.executable, str(ROOT / "rotate_accounts.py"), "cloud", "recipe", machine.name, *words]
    made = subprocess.run(
        [*command, "--to", str(folder / "train.sh"), "--ephemeral", "--price", str(args.price), "--json"],
        check=True, env=environ, capture_output=True, text=True,
    )  # fmt: skip
    (expected,) = json.loads(made.stdout)["files"]
    began = time.monotonic()
    code = subprocess.run(
        ["bash", str(folder / "train.sh"), str(ROOT)], cwd=folder, env=environ, check=False
    ).returncode
    took = time.monotonic() - began
    (report,) = [json.loads(path.read_text())["report"] for path in store.rglob("sessions/*.json")]
    steps = report["to_step"] - report["from_step"] - 1  # the first one is counted as compiling
    kept = ("exit_code", "from_step", "to_step", "wall_s", "phases", "goodput", "environment")
    document = {
        "schema": "relay.cloud-session/1",
        "exit_code": code,
        "expected": {
            name: expected[name] for name in ("step_s", "setup_minutes", "rows", "accumulation", "budget_minutes")
        },
        "report": {name: report[name] for name in kept if name in report},
        "script_s": took,
        "step_s": report["phases"]["train"] / steps if steps > 0 else None,
        "usd_per_hour": args.price,
        "usd": args.price * took / 3600,
    }
    write(args.out / "session.json", document)
    print(json.dumps(document, indent=1))


def write(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(path)


def main() -> None:
    """One part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("predict", "measure", "session"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", type=Path, help="predict: a rates.json in place of measuring")
    parser.add_argument("--price", type=float, default=3.5, help="session: dollars an hour of this machine")
    parser.add_argument("--train", type=Path, help="session: a text, where the hub cannot be reached")
    args = parser.parse_args()
    {"predict": predict, "measure": measure, "session": session}[args.part](args)


if __name__ == "__main__":
    main()
