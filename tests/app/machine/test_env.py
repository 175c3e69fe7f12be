"""Visible properties distinguish machines, and their clocks are read without any request."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relay.app.machine.env import Machine, detect
from relay.core.lease.processage import process_age

HZ = os.sysconf("SC_CLK_TCK")


def proc(root: Path, uptime: float, **started: float) -> Path:
    (root / "proc").mkdir()
    (root / "proc" / "uptime").write_text(f"{uptime} 1.0\n")
    for name, seconds in started.items():
        pid = name.removeprefix("pid_")
        (root / "proc" / pid).mkdir()
        fields = ["S", *["0"] * 18, str(int(seconds * HZ)), "0"]
        (root / "proc" / pid / "stat").write_text(f"12 (we ird) name) {' '.join(fields)}\n")
    return root


@pytest.mark.parametrize(
    ("environ", "provider"),
    [
        ({}, "local"),
        ({"COLAB_RELEASE_TAG": "x"}, "colab"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Batch"}, "kaggle"),
        ({"SLURM_JOB_ID": "7"}, "slurm"),
    ],
)
def test_provider_from_environment(tmp_path: Path, environ: dict[str, str], provider: str) -> None:
    assert detect(environ, 0.0, tmp_path).provider == provider


def test_colab_is_known_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "var/colab").mkdir(parents=True)
    (tmp_path / "var/colab/hostname").write_text("x")
    assert detect({}, 0.0, tmp_path).provider == "colab"


def test_machine_clock_counts_from_the_first_process(tmp_path: Path) -> None:
    machine = detect({"COLAB_RELEASE_TAG": "x"}, 0.0, proc(tmp_path, 4000.0, pid_1=400.0))
    assert (machine.age_s, machine.limit_minutes) == (3600.0, 720.0)
    assert machine.left_s() == 11 * 3600
    assert machine.left_s(90) == 1800


def test_process_age_survives_names_with_spaces_and_brackets(tmp_path: Path) -> None:
    assert process_age(proc(tmp_path, 100.0, self=40.0)) == 60.0


@pytest.mark.parametrize("started", [0.0, 200.0])
def test_an_impossible_start_is_unknown(tmp_path: Path, started: float) -> None:
    assert process_age(proc(tmp_path, 100.0, self=started)) is None


def test_no_proc_is_unknown(tmp_path: Path) -> None:
    assert process_age(tmp_path) is None
    assert detect({}, 0.0, tmp_path) == Machine("local", None, None)
    assert detect({}, 0.0, tmp_path).left_s() is None


def test_slurm_knows_start_and_end(tmp_path: Path) -> None:
    environ = {"SLURM_JOB_ID": "1", "SLURM_JOB_START_TIME": "1000", "SLURM_JOB_END_TIME": "4600"}
    assert detect(environ, 1600.0, tmp_path) == Machine("slurm", 600.0, 60.0)


@pytest.mark.parametrize("told", ["junk", "nan", "inf", "-inf"])
def test_slurm_without_times_has_no_limit(tmp_path: Path, told: str) -> None:
    environ = {"SLURM_JOB_ID": "1", "SLURM_JOB_START_TIME": told, "SLURM_JOB_END_TIME": "4600"}
    found = detect(environ, 1600.0, tmp_path)
    assert (found.limit_minutes, found.age_s) == (None, None)
