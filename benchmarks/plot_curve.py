"""Draws true_run.py's curve.json and the reference's one run: accuracy against steps and against GPU minutes.

pip install matplotlib
python benchmarks/plot_curve.py docs/records/2026-11-28_true_run
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import itertools

import matplotlib.pyplot as plt

OURS, THEIRS = "#1f6feb", "#999999"


def step_seconds(log: list[list[float]]) -> float:
    """Median seconds a step, from reports 20 steps apart."""
    pairs = itertools.pairwise(log)
    return statistics.median((b[2] - a[2]) / 20 for a, b in pairs if a[0] == b[0] and b[1] - a[1] == 20)


def draw(curve: dict[str, Any], rows: list[list[float]], path: Path) -> None:
    """Exact accuracy twice, cell accuracy and loss once."""
    steps = sorted(int(step) for step in curve["points"])
    seconds = step_seconds(curve["log"])
    exact, cell = ([curve["points"][str(step)][name] for step in steps] for name in ("exact_accuracy", "cell_accuracy"))
    reference = [row[0] for row in rows]
    figure, ((a, b), (c, d)) = plt.subplots(2, 2, figsize=(10, 7), constrained_layout=True)
    a.plot(reference, [row[2] for row in rows], "o-", color=THEIRS, label="reference, one H100, n = 1")
    ours = f"relayed through {len(curve['links'])} sessions, {curve['gpu'].split(',')[0]}, n = 1"
    a.plot(steps, exact, "o-", color=OURS, label=ours)
    b.plot([row[1] / 60 for row in rows], [row[2] for row in rows], "o-", color=THEIRS)
    b.plot([step * seconds / 60 for step in steps], exact, "o-", color=OURS)
    c.plot(reference, [row[3] for row in rows], "o-", color=THEIRS)
    c.plot(steps, cell, "o-", color=OURS)
    d.plot(reference, [row[4] for row in rows], "o-", color=THEIRS)
    d.plot(steps, [curve["losses"][str(step)] for step in steps], "o-", color=OURS)
    titles = ("exact accuracy, 2,000 test puzzles", "the same, by minutes of training steps",
              "cell accuracy, the same puzzles", "training loss, mean of 500 steps")  # fmt: skip
    for axes, title, unit in zip((a, b, c, d), titles, ("step", "minutes", "step", "step"), strict=True):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(unit)
        axes.grid(alpha=0.3)
    for axes in (a, c, d):
        for link in curve["links"][1:]:
            axes.axvline(link["from_step"], color=OURS, alpha=0.4, linestyle=":")
    a.legend(loc="upper left", fontsize=8, title="dotted: the next session takes over", title_fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """curve.json and reference.json of a folder -> curve.svg there."""
    folder = Path(sys.argv[1])
    plt.rcParams["svg.hashsalt"] = "trm-relay"
    curve, reference = (json.loads((folder / f"{name}.json").read_text()) for name in ("curve", "reference"))
    draw(curve, reference["rows"], folder / "curve.svg")


if __name__ == "__main__":
    main()
