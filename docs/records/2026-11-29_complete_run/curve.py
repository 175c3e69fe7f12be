"""What the ledger says of the run, as curve.json: validation, mean loss between checkpoints, milliseconds a step.

python curve.py STORE RUN curve.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def commits(folder: Path) -> list[dict[str, Any]]:
    """Every commit with its account."""
    entries = [json.loads(path.read_text())["body"] for path in sorted(folder.glob("*.json"))]
    entries = [json.loads(body) if isinstance(body, str) else body for body in entries]
    return [{**entry["change"], "account": entry["account"]} for entry in entries if entry["kind"] == "commit"]


def row(commit: dict[str, Any]) -> dict[str, Any]:
    """One checkpoint."""
    samples, metrics = commit["samples"], commit["metrics"]
    losses = [loss for loss in samples["columns"]["lm_loss"] if loss is not None]
    steps, seconds = (samples[name][-1] - samples[name][0] for name in ("steps", "seconds"))
    return {
        "step": commit["checkpoint"]["step"],
        "account": commit["account"],
        "lm_loss": round(sum(losses) / len(losses), 4),
        "valid_exact": metrics.get("valid/exact_accuracy"),
        "valid_cell": metrics.get("valid/cell_accuracy"),
        "valid_rows": metrics.get("valid/n"),
        "ms_a_step": round(1000 * seconds / steps, 1) if steps else None,
        "seconds": round(commit["seconds"], 1),
        "state_hash": commit["checkpoint"]["state_hash"],
    }


def main() -> None:
    store, run, out = sys.argv[1:]
    (folder,) = Path(store).glob(f"runs/*/{run}/ledger")
    rows = [row(commit) for commit in commits(folder)]
    Path(out).write_text("[\n" + ",\n".join(" " + json.dumps(line) for line in rows) + "\n]\n")
    for line in rows:
        print(
            *(line[key] for key in ("step", "account", "lm_loss", "valid_exact", "valid_cell", "ms_a_step", "seconds"))
        )


if __name__ == "__main__":
    main()
