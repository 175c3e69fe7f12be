"""The form of benchmarks/cloud_prediction.py's files: predictions from two tasks, and their comparison."""

from __future__ import annotations

import pytest

from benchmarks.cloud_prediction import BASE, OTHERS, compared, prediction
from relay.app.cloud.machines import shipped
from relay.app.cloud.rates import Rate

ABOUT = {"card": "H200", "n": 60, "torch": "2.11.0", "triton": "3.6.0", "record": "made"}
MEASURED = [
    Rate(task="sudoku", method="hopper", ms=71.63, step_tflop=32.8082, **ABOUT),  # type: ignore[arg-type]
    Rate(task="lm_small", method="compiled", ms=20.0, step_tflop=2.9378, **ABOUT),  # type: ignore[arg-type]
]


def test_each_other_task_is_scaled_from_its_own_model() -> None:
    found = prediction(MEASURED, shipped().machine("1xH200"))
    assert (found["schema"], found["machine"]) == ("relay.cloud-prediction/1", "1xH200")
    assert tuple(one["task"] for one in found["base"]) == BASE
    for row, task, base in zip(found["predictions"], OTHERS, (0, 1, 1), strict=True):
        one = MEASURED[base]
        assert row["task"] == task and row["step_s"]["mark"] == "scaled" and one.task in row["step_s"]["basis"]
        same = one.ms / 1000 * row["step_flops"] / (one.step_tflop * 1e12)
        assert row["step_s"]["low"] == row["step_s"]["high"] == pytest.approx(same)
        assert row["rows"] >= 1 and row["memory_gb"] < 141


def test_a_prediction_is_good_within_a_fifth() -> None:
    found = prediction(MEASURED, shipped().machine("1xH200"))
    seconds = {row["task"]: row["step_s"]["low"] for row in found["predictions"]}
    wrong = {"sudoku_att": 1.0, "lm": 1.3, "lm_fast": 0.85}
    measured = [
        MEASURED[0].model_copy(update={"task": task, "ms": 1000 * seconds[task] * wrong[task]}) for task in OTHERS
    ]
    rows = {row["task"]: row for row in compared(found, measured)}
    assert {task: row["within_20_percent"] for task, row in rows.items()} == {
        "sudoku_att": True,
        "lm": False,
        "lm_fast": True,
    }
    assert rows["lm"]["predicted_over_measured"] == pytest.approx(1 / 1.3)
