"""The step on PyTorch/XLA's CPU client: run by `make xla` in an environment of its own (7 GB), not by CI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from relay.torch.snapshot import state_hash
from trm.data.dataset import Batch
from trm.model import Sizes
from trm.presets import preset
from trm.train import TrainState
from trm.workload import TrmWorkload
from trm.xlastep import XlaStep

HOME = Path(__file__).parents[2]


def steps(device: str, count: int, root: Path) -> list[dict[str, float]]:
    """The metrics of each of the first steps of sudoku4."""
    found: list[dict[str, float]] = []
    workload = TrmWorkload(preset("sudoku4"), root, device)
    workload.start()
    for step in range(count):
        workload.advance(step + 1, lambda: False, lambda progress: found.append(dict(progress.metrics)))
    return found


def test_the_first_losses_are_those_of_the_plain_step_and_two_graphs_are_compiled(tmp_path: Path) -> None:
    found = steps("xla", 12, tmp_path)  # before the plain ones: autograd's engine counts the devices once
    plain = steps("cpu", 3, tmp_path)
    assert [one["lm_loss"] for one in found[:3]] == pytest.approx([one["lm_loss"] for one in plain], rel=1e-4)
    assert found[-1]["xla_compilations"] - found[0]["xla_compilations"] == 1


def test_a_restored_state_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole = TrmWorkload(preset("sudoku4"), tmp_path, "xla")
    whole.start()
    whole.advance(6, lambda: False, None)
    (tmp_path / "half").mkdir()
    whole.snapshot().save(tmp_path / "half")
    whole.advance(12, lambda: False, None)
    again = TrmWorkload(preset("sudoku4"), tmp_path, "xla")
    again.load(tmp_path / "half")
    again.advance(12, lambda: False, None)
    assert again.digest().digest == whole.digest().digest


def test_one_step_takes_several_states_in_turn(tmp_path: Path) -> None:
    config, sizes = preset("sudoku4"), Sizes(16, 6, 1)
    batch = Batch(
        *(torch.ones(config.batch_size, 16, dtype=torch.int32),) * 2, torch.zeros(config.batch_size, dtype=torch.int32)
    )
    step, first, second = XlaStep(), TrainState(config, sizes), TrainState(config, sizes)
    for state in (first, second):
        step(state, batch)
    assert state_hash(first.canonical(), 1, 0) == state_hash(second.canonical(), 1, 0)
    assert state_hash(first.canonical(), 1, 0) != state_hash(TrainState(config, sizes).canonical(), 1, 0)


def test_the_published_shape_is_traced_in_bfloat16() -> None:
    config = preset("sudoku").model_copy(update={"batch_size": 4})
    sizes, tokens = Sizes(81, 11, 1), torch.randint(1, 11, (4, 81), dtype=torch.int32)
    state, step = TrainState(config, sizes), XlaStep()
    before = step.compilations
    for _ in range(3):
        metrics = step(state, Batch(tokens, tokens, torch.zeros(4, dtype=torch.int32)))
    assert torch.isfinite(metrics).all() and step.compilations - before == 2
    assert state_hash(state.canonical(), 3, 0) != state_hash(TrainState(config, sizes).canonical(), 3, 0)


def relayed(home: Path, *sessions: tuple[int, str]) -> dict[str, Any]:
    """Report of a run that processes of their own trained to each of these steps, on that device."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
    place = clean | {"HOME": str(home), "RELAY_STORE": f"file://{home}/store", "PYTHONPATH": str(HOME)}

    def command(*words: str) -> str:
        whole = [sys.executable, str(HOME / "rotate_accounts.py"), *words]
        done = subprocess.run(whole, cwd=HOME, env=place, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    home.mkdir()
    for step, device in sessions:
        command("run", "--target-steps", str(step), f"device={device}", "task=sudoku4")
    found: dict[str, Any] = json.loads(command("report", "--json"))
    return found


def test_two_sessions_in_two_processes_equal_the_unbroken_run(tmp_path: Path) -> None:
    whole = relayed(tmp_path / "whole", (40, "xla"))
    halves = relayed(tmp_path / "halves", (20, "xla"), (40, "xla"))
    assert whole["head"]["state_hash"] == halves["head"]["state_hash"]
    assert [link["certified"] for link in halves["links"]] == ["unknown", "exact"]


def test_a_link_to_another_device_is_not_called_exact(tmp_path: Path) -> None:
    report = relayed(tmp_path / "home", (10, "xla"), (20, "cpu"))
    assert report["links"][1]["certified"] != "exact"
