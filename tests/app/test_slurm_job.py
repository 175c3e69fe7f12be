"""slurm/relay.sbatch under bash, with doubles of srun and scontrol: the receivers of signals, and the requeued jobs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "slurm" / "relay.sbatch"
SRUN = r"""#!/usr/bin/env bash
# As the real one: USR1 is handed on to the tasks, TERM kills them.
echo "srun $*" >>"$CALLS"
while [[ $1 == --* ]]; do shift; done
trap '[[ $! ]] || exit 138; again=1; kill -s USR1 $!' USR1
trap '[[ $! ]] || exit 143; again=1; kill -s KILL $!' TERM
"$@" &
again=1
while [[ $again ]]; do again=''; wait $!; code=$?; done
exit $code
"""
SCONTROL = r"""#!/usr/bin/env bash
echo "scontrol $*" >>"$CALLS"
case $1 in
  show) printf 'JobId=7 JobName=trm-relay\n   JobState=%s Reason=None\n' "${STATE:-RUNNING}" ;;
  requeue) kill -s TERM "$PPID"; exit "${REQUEUE_CODE:-0}" ;;
esac
"""
SESSION = r"""
echo session >>"$CALLS"
[[ -n ${HOLD:-} ]] || exit "$CODE"
trap 'echo "got USR1" >>"$CALLS"; exit 75' USR1
trap 'echo "got TERM" >>"$CALLS"; exit 143' TERM
echo "holds $$" >>"$CALLS"
while :; do sleep 0.05; done
"""


@dataclass
class Job:
    """A submit folder with a workflow script, and Slurm's commands on PATH."""

    folder: Path

    def start(self, **environ: str) -> subprocess.Popen[str]:
        plain = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "CALLS": str(self.folder / "calls")}
        job = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(self.folder), "SLURM_CPUS_PER_TASK": "4"}
        return subprocess.Popen(
            ["bash", str(SCRIPT)],
            cwd="/",
            env=plain | job | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, **environ: str) -> tuple[int, str]:
        process = self.start(**environ)
        _, err = process.communicate(timeout=60)
        return process.returncode, err

    def called(self, words: str) -> list[str]:
        path = self.folder / "calls"
        return [line for line in path.read_text().splitlines() if words in line] if path.exists() else []

    def until(self, words: str) -> str:
        end = time.monotonic() + 30
        while not self.called(words):
            assert time.monotonic() < end, f"no {words}"
            time.sleep(0.02)
        return self.called(words)[0]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "bin").mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "multi_account_workflow.sh").write_text(SESSION)
    return Job(tmp_path)


def test_what_slurm_is_asked_for() -> None:
    asked = set(re.findall(r"(?m)^#SBATCH (\S+)", SCRIPT.read_text()))
    assert asked >= {"--signal=B:USR1@300", "--requeue", "--open-mode=append", "--gres=gpu:1", "--time=01:00:00"}


@pytest.mark.parametrize("code", [0, 1, 65, 69, 74, 76, 77, 78, 130])
def test_what_a_person_must_look_at_is_not_queued_again(job: Job, code: int) -> None:
    assert job.run(CODE=str(code))[0] == code
    assert not job.called("requeue") and job.called("srun --ntasks=1 --cpus-per-task=4 bash multi_account_workflow.sh")


@pytest.mark.parametrize("code", [75, 138, 143])
def test_a_hand_off_is_queued_again_once(job: Job, code: int) -> None:
    assert job.run(CODE=str(code))[0] == code
    assert job.called("requeue") == ["scontrol requeue 7"] and not job.called("update")


def test_a_held_lease_is_come_back_to_later(job: Job) -> None:
    assert job.run(CODE="73")[0] == 73
    assert job.called("requeue") == ["scontrol requeue 7"]
    assert job.called("update") == ["scontrol update JobId=7 StartTime=now+10minutes"]


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING", "PENDING", "PREEMPTED"])
def test_a_job_that_somebody_cancelled_or_slurm_queued_again_is_left_alone(job: Job, state: str) -> None:
    assert job.run(CODE="143", STATE=state)[0] == 143
    assert not job.called("requeue")


def test_a_cluster_that_refuses_says_what_to_type(job: Job) -> None:
    code, err = job.run(CODE="75", REQUEUE_CODE="1")
    assert code == 75 and "sbatch slurm/relay.sbatch" in err


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGTERM])
def test_a_signal_to_the_batch_shell_is_a_planned_end_and_one_requeue(job: Job, number: signal.Signals) -> None:
    """TERM too: srun would kill its tasks for it."""
    process = job.start(HOLD="1")
    job.until("holds")
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 75
    assert job.called("got") == ["got USR1"] and job.called("requeue") == ["scontrol requeue 7"]


def test_a_preemption_told_to_the_step_alone_is_queued_again_once(job: Job) -> None:
    process = job.start(HOLD="1")
    os.kill(int(job.until("holds").split()[1]), signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert job.called("got") == ["got TERM"] and job.called("requeue") == ["scontrol requeue 7"]
