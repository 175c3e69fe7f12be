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


def test_each_other_task_is_scaled_from_a_task_of_its_model_and_size_or_is_a_range() -> None:
    found = prediction(MEASURED, shipped().machine("1xH200"))
    assert (found["schema"], found["machine"]) == ("relay.cloud-prediction/1", "1xH200")
    assert tuple(one["task"] for one in found["base"]) == BASE
    for row, task in zip(found["predictions"], OTHERS, strict=True):
        assert row["task"] == task and row["rows"] >= 1 and row["memory_gb"] < 141
    alike, *larger = (row["step_s"] for row in found["predictions"])
    same = 0.07163 * found["predictions"][0]["step_flops"] / 32.8082e12
    assert (alike["mark"], alike["low"], alike["high"]) == ("scaled", pytest.approx(same), pytest.approx(same))
    assert "sudoku" in alike["basis"]
    assert all(one["mark"] == "guessed" and one["low"] < one["high"] for one in larger), "lm_small is too small"


def test_a_prediction_is_good_within_a_fifth() -> None:
    found = prediction(MEASURED, shipped().machine("1xH200"))
    seconds = {row["task"]: (row["step_s"]["low"] + row["step_s"]["high"]) / 2 for row in found["predictions"]}
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
