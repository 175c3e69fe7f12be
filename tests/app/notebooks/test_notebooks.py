"""Colab and Kaggle as a person meets them: data before a session, and the same words in each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from relay.app.commands.common import App
from relay.app.machine.env import detect
from relay.app.models.trm import Trm
from tests.app.cli import Desk

SAMPLES = Path(__file__).parents[2] / "data" / "sudoku"
COLAB = {"COLAB_RELEASE_TAG": "release-colab_20261101"}
KAGGLE = {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}


def test_preparing_reads_attached_data_and_writes_nothing_beside_it(tmp_path: Path) -> None:
    """/kaggle/input is read-only; new files go to the working folder."""
    attached, working = tmp_path / "input" / "sudoku", tmp_path / "working"
    attached.mkdir(parents=True)
    working.mkdir()
    for name in ("train.csv", "test.csv"):
        shutil.copy(SAMPLES / "good.csv", attached / name)
    before = sorted(attached.iterdir())
    app = App(plugin=Trm(), environ=KAGGLE, cwd=working, root=tmp_path, export=lambda found: None)
    data = [f"data.{part}={attached}/{part}.csv" for part in ("train", "test")]
    resolved = app.settle(["task=sudoku", *data], store=False)
    lines = app.plugin.prepare(resolved.workload, working / "data")
    assert any(line.startswith("train: ") for line in lines) and sorted(attached.iterdir()) == before


@pytest.mark.parametrize("environ", [COLAB, KAGGLE], ids=["colab", "kaggle"])
def test_everybody_types_the_same_and_the_run_goes_on(tmp_path: Path, environ: dict[str, str]) -> None:
    for number, (account, target) in enumerate([("account_1", 20), ("account_2", 40), ("account_1", 60)]):
        machine = Desk(tmp_path / f"machine-{number}", environ=environ | {"RELAY_STORE": f"file://{tmp_path}/shared"})
        settings = {"ACCOUNT_ID": account, "RELAY_TARGET_STEPS": str(target)}
        machine("register", account, f"{account}'s {'Colab' if environ is COLAB else 'Kaggle'}", code=None)
        said = machine("run", "--wait", "5", "--json", **settings, RELAY_COAUTHOR="1").json
        assert (said["from_step"], said["durable_step"]) == (target - 20, target)


def test_what_a_notebook_machine_is_known_to_leave(tmp_path: Path) -> None:
    """12 hours from the start of the container, in an interactive session, a batch one and a rerun alike."""
    for environ in (COLAB, KAGGLE, {"KAGGLE_KERNEL_RUN_TYPE": "Batch"}, KAGGLE | {"KAGGLE_IS_COMPETITION_RERUN": "1"}):
        assert detect(environ, 0.0, tmp_path).limit_minutes == 720.0
