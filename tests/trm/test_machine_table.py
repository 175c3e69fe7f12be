"""The table of benchmarks/machine.py says what its benchmarks found, and a dash for what they did not."""

from __future__ import annotations

import importlib.util
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from trm.cards import Row

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STEPS = {
    "ceiling_tflops": 800.0,
    "step_tflop": 40.0,
    "rows": [{"name": "fused", "ms": 80.0, "peak_gib": 13.5}, {"name": "plain", "ms": 320.0, "peak_gib": 41.0}],
}
STARTS = {
    "sessions": [
        {"kind": "begin", "startup": {"import_s": 9.0}},
        {"kind": "cold", "startup": {"import_s": 4.0, "first_step_s": 27.0, "compile_s": 25.0}},
        {"kind": "warm", "startup": {"import_s": 4.0, "cache_s": 1.0, "first_step_s": 2.0}},
    ]
}
FOUND = {"step_time": STEPS, "checkpoint_stall": {"ms": 90.0, "stall_ms": 5.0}, "warm_start": STARTS}


@pytest.fixture
def machine() -> Any:
    """benchmarks/machine.py, which no package holds."""
    return benchmark("machine")


@pytest.fixture
def step_time(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarks/step_time.py."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return benchmark("step_time")


def benchmark(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(
    machine: Any, monkeypatch: pytest.MonkeyPatch, task: str, train: str | None, gpu: bool, **missing: None
) -> Any:
    """The task's lines as words, where the benchmarks found FOUND but for what is `missing`."""
    found = FOUND | missing
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(machine, "results", lambda script, *_words: found[script])
    args = Namespace(out=Path("nowhere"), train=train, steps=10)
    return [machine.shown(line).split() for line in machine.rows(task, args)]


def test_the_step_of_a_session_has_its_stall_and_starts(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(machine, monkeypatch, "sudoku", "train.csv", gpu=True) == [
        ["sudoku", "fused", "80.00", "500.00", "0.62", "13.50", "4.00", "5.00", "31.00", "7.00"],
        ["sudoku", "plain", "320.00", "125.00", "0.16", "41.00", "1.00", "-", "-", "-"],
    ]


def test_without_puzzles_no_session_is_timed(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(machine, monkeypatch, "arc", None, gpu=True)[0][7:] == ["-", "-", "-"]


def test_what_failed_is_a_dash(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(machine, monkeypatch, "sudoku", "train.csv", gpu=True, checkpoint_stall=None, warm_start=None)
    assert found[0][7:] == ["-", "-", "-"]
    assert lines(machine, monkeypatch, "sudoku", "train.csv", gpu=True, step_time=None) == []


def test_without_a_gpu_the_plain_step_is_timed(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(machine, monkeypatch, "sudoku4", None, gpu=False) == [
        ["sudoku4", "plain", "90.00", "-", "-", "-", "-", "5.00", "31.00", "7.00"]
    ]


@pytest.mark.parametrize("gpu", [True, False])
def test_lines_to_paste_are_rows_of_the_table_of_cards(
    machine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpu: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100-SXM4-40GB")
    path = "fused-specialized-mixer-graph"
    rows = [{"name": name, "path": path if name == "fused" else "", "ms": 80.123, "n": 60} for name in machine.HOW]
    (tmp_path / "step_time.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / "checkpoint_stall.json").write_text(json.dumps({"ms": 90.0, "steps": 96}))
    pasted = machine.to_paste("sudoku", tmp_path)
    assert all(isinstance(row, Row) for row in pasted)
    found = [(row.card, row.how, row.ms, row.n) for row in pasted]
    card = "A100-SXM4-40GB"
    on_gpu = [(card, how, 80.12, 60) for how in ("hopper", "compiled", "plain")]
    assert found == (on_gpu if gpu else [("cpu", "plain", 90.0, 96)])


def test_a_card_with_little_memory_takes_the_batch_in_the_parts_of_a_session(
    step_time: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were measured with 15 GB of an H100 (docs/records/2026-11-28_card)."""
    found = json.loads((BENCHMARKS.parent / "docs" / "records" / "2026-11-28_card" / "card.json").read_text())
    names = {"fused": "fused", "eager": "plain"}
    monkeypatch.setattr(step_time, "slow_bf16", lambda device: False)
    for row in found["rows"]:
        monkeypatch.setattr(step_time, "free_bytes", lambda device, row=row: int(row["free_gb"] * 1e9))
        assert step_time.parts_of(names[row["method"]], step_time.case("sudoku")) == row["parts"], row


def test_a_card_that_compiles_no_bfloat16_gets_no_row_that_says_compiled(
    step_time: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "a card")
    every = list(step_time.ROWS)
    for capability, names in (((7, 5), ["plain"]), ((8, 0), every[1:])):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None, own=capability: own)
        assert step_time.possible(every, step_time.case("sudoku")) == names


def test_a_stall_is_what_a_checkpoint_adds_to_the_same_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint trains the next step itself: that step is one of the number. By a clock that only work moves."""
    module, now = benchmark("checkpoint_stall"), [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])

    class Work:
        step, device = 0, torch.device("cpu")

        def advance(self, until: int, *_: Any) -> None:
            now[0] += until - self.step
            self.step = until

    def checkpoint() -> None:
        now[0] += 0.25
        work.advance(work.step + 1)

    work = Work()
    assert module.stalled(work, 12, checkpoint) == (12.0, 0.25)
