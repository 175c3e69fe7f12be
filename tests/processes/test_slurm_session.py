"""The Slurm job, the workflow script and a real session, one in the other: SIGUSR1 to the job is a commit."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest

from relay.core.ledger.frozen import ASKED_TO_STOP
from tests.app.test_slurm_job import SCONTROL, SRUN, Job
from tests.processes.field import ROOT, RUN, Field, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PYTHON = """#!/usr/bin/env bash
[[ $1 == rotate_accounts.py && $2 == run ]] || exit 0   # the other commands have tests of their own
shift
exec {real} -m tests.processes.program "$@"
"""


def test_usr1_to_the_job_commits_hands_off_and_queues_it_again_once(field: Field, tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    (folder / "bin").mkdir(parents=True)
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("python3", PYTHON.format(real=sys.executable))):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    shutil.copy(ROOT / "multi_account_workflow.sh", folder)
    notes = tmp_path / "notes"
    more = {"RELAY_TARGET_STEPS": "1000000", "RELAY_CHECKPOINT_EVERY_STEPS": "10", "RUN_NAME": RUN}
    environ = field.environment("one") | {"TOY_NOTES": str(notes), "VIRTUAL_ENV": "/v"} | more
    environ.pop("PATH")
    process = Job(folder).start(**environ)
    until(lambda: notes.exists() and notes.read_text().count("landed-commit") >= 2)
    process.send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert Job(folder).called("requeue") == ["scontrol requeue 7"]
    state = field.assert_whole()
    assert state.holder is None and state.step >= 20 and state.links[-1].end == ASKED_TO_STOP
