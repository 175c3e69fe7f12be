"""A machine that is unfit for a session reports it, loudly, before the lease, and names the control to click."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from relay.app.machine.place import another_card
from relay.app.models.trm import Trm
from tests.app.cli import Desk, ToyPlugin

COLAB = {"COLAB_RELEASE_TAG": "release-colab_20261101"}
KAGGLE = {"KAGGLE_KERNEL_RUN_TYPE": "Interactive", "RELAY_COAUTHOR": "1"}
SLURM = {"SLURM_JOB_ID": "7"}
LARGE = "task=sudoku"


def session(desk: Desk, environ: Mapping[str, str], *words: str, code: int = 0, target: int = 2) -> str:
    asked = ("run", "--run", "r", "--account", "account_1", "--new-target", str(target), "--new", *words)
    return desk(*asked, code=code, **environ).err


@pytest.mark.parametrize(
    ("environ", "click"),
    [
        (COLAB, "Runtime > Change runtime type"),
        (KAGGLE, "Settings > Accelerator > GPU T4 x2 (not P100"),
        (SLURM, "--gres=gpu:1"),
        ({}, "machine with a GPU"),
    ],
)
def test_a_task_for_a_gpu_is_refused_without_one_everywhere(desk: Desk, environ: dict[str, str], click: str) -> None:
    said = session(desk, environ, LARGE, code=78)
    assert "NO GPU" in said and click in said and "device=cpu" in said
    assert not list(desk.folder.glob("relay_store/**/ledger")), "nothing was begun"


@pytest.mark.parametrize("environ", [COLAB, {}])
@pytest.mark.parametrize("meant", [("--cpu",), ("device=cpu",)])
def test_a_cpu_that_is_meant_trains(desk: Desk, meant: tuple[str, ...], environ: dict[str, str]) -> None:
    said = session(desk, environ, LARGE, *meant)
    assert "NO GPU" in said and "PACE" in said


def test_a_cpu_can_be_meant_in_the_environment(desk: Desk) -> None:
    assert "NO GPU" in session(desk, KAGGLE | {"RELAY_CPU": "1"}, LARGE)
    shown = desk("config", "show", "--origin", "--json", RELAY_CPU="1").json["settings"]
    assert [(row["value"], "RELAY_CPU" in row["origin"]) for row in shown if row["key"] == "device"] == [("cpu", True)]


def test_what_relay_cpu_may_say(desk: Desk) -> None:
    session(desk, COLAB | {"RELAY_CPU": "0"}, LARGE, code=78)
    refused = desk("config", "show", code=78, RELAY_CPU="maybe").err
    assert "RELAY_CPU" in refused and "'maybe'" in refused


def test_the_small_task_needs_no_word(desk: Desk) -> None:
    assert "NO GPU" not in session(desk, COLAB)
    assert "NO GPU" not in session(Desk(desk.folder / "own"), {})


def test_a_gpu_is_never_asked_about(desk: Desk) -> None:
    class WithGpu(ToyPlugin):
        def slow_here(self, config: object, device: str) -> str | None:
            return None

    desk.plugin = WithGpu()
    assert "NO GPU" not in session(desk, COLAB, LARGE)


def test_sending_what_is_here_needs_no_gpu(desk: Desk) -> None:
    session(desk, COLAB, LARGE, "--cpu", target=4)
    assert "NO GPU" not in desk("push", "--run", "r", LARGE, **COLAB).err


def test_preparing_and_beginning_need_no_gpu(desk: Desk) -> None:
    assert "NO GPU" not in desk("prepare", LARGE, **KAGGLE).err
    assert "NO GPU" not in desk("init", "--run", "r", LARGE, **KAGGLE).err


def test_a_competitions_rerun_trains_nothing(desk: Desk) -> None:
    said = session(desk, KAGGLE | {"KAGGLE_IS_COMPETITION_RERUN": "1"}, code=78)
    assert "competition's rerun" in said


def test_another_card_than_registered_is_said(desk: Desk) -> None:
    desk("register", "account_1", "Ada's Colab", "--gpu", "T4")
    said = session(desk, COLAB)
    assert "T4" in said and "no GPU" in said


@pytest.mark.parametrize(
    ("registered", "found", "same"),
    [
        (None, "T4", True),
        ("T4", "T4", True),
        ("T4 x2", "T4", True),
        ("nvidia t4", "T4", True),
        ("H100_80GB", "H100 80GB HBM3", True),
        ("A100", "A100-SXM4-40GB", True),
        ("RTX 3090", "RTX 3090", True),
        ("a fast one", "T4", True),
        ("80GB", "H100 80GB HBM3", True),
        ("T4", "P100-PCIE-16GB", False),
        ("A100 80GB", "H100 80GB HBM3", False),
        ("RTX 3090", "RTX 4090", False),
        ("T4", "cpu", False),
        ("L4", "L40S", False),
    ],
)
def test_which_cards_are_taken_for_the_same(registered: str | None, found: str, same: bool) -> None:
    assert (another_card(registered, found) == "") is same


@pytest.mark.slow
def test_a_machine_with_too_little_memory_is_refused_before_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data can still be prepared, and a run begun for others."""
    monkeypatch.setenv("TRM_MEMORY_GB", "0.05")
    desk = Desk(tmp_path, plugin=Trm())  # type: ignore[arg-type]
    few = "data.train_rows=100"
    assert "0.1 GB are free" in session(desk, {}, few, code=78)
    assert not list(desk.folder.glob("relay_store/**/ledger"))
    desk("prepare", few)
    desk("init", "--run", "r", few)
    monkeypatch.setenv("TRM_MEMORY_GB", "1")
    assert "MEMORY" not in desk("run", "--run", "r", "--account", "account_1", RELAY_UNTIL_STEP="1", code=75).err
