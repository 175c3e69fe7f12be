"""SIGTERM with its grace of 30 s and SIGINT, in every phase of a session, to real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes.field import ROOT, RUN, Field, Session, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
GRACE_S = 30.0
"""What services leave between SIGTERM and SIGKILL."""
LEAVING_S = 6.0
"""Longest from the last thing to do to a process that is gone, on a slow and busy machine."""


def ended_by(session: Session, number: signal.Signals, code: int, within_s: float = GRACE_S) -> None:
    """Send a signal; it has to be gone in time with that exit code."""
    began = time.monotonic()
    session.send(number)
    assert session.wait(within_s + 20) == code, session.err
    assert time.monotonic() - began <= within_s, session.err


def assert_handed_over(field: Field, at_least: int) -> None:
    """The lease was given back, the trained steps are durable, and the next session goes on at once."""
    state = field.assert_whole()
    assert state.holder is None and state.step >= at_least
    field.call(field.train(state.step + 10, account="account_2", machine="two"))
    assert field.assert_whole().step == state.step + 10


def test_sigterm_while_training(field: Field) -> None:
    session = field.train(10**9)
    session.until("landed-commit", 2)
    trained = session.noted("step")[-1].number
    ended_by(session, signal.SIGTERM, 143, LEAVING_S)
    assert_handed_over(field, at_least=trained)


def test_sigterm_while_the_first_step_compiles(field: Field) -> None:
    field.call(field.train(20))
    session = field.train(10**9, compile_s=2.5)
    session.until("compiling")
    ended_by(session, signal.SIGTERM, 143, 2.5 + LEAVING_S)
    assert_handed_over(field, at_least=21)


BEFORE_THE_LEASE = (
    "read identity",
    "put probe",
    "append probe",
    "append account",
    "append genesis",
    "read slot",
    "append lease",
)


@pytest.mark.parametrize("moment", BEFORE_THE_LEASE)
def test_sigterm_while_the_store_hangs_before_the_lease(field: Field, moment: str) -> None:
    """The self-test, which races in threads of its own, the registry, the log."""
    if moment.startswith("read"):
        field.call(field.train(10))
    session = field.train(10**9, hang_at=f"before {moment}", early_s=0.5)
    session.until("hanging")
    ended_by(session, signal.SIGTERM, 143, 3.0)
    assert_ended_in_one_line(session)
    field.call(field.train(20, account="account_2", machine="two"))
    assert field.assert_whole().step == 20


@pytest.mark.parametrize("moment", ["read slot", "read manifest", "read weights.bin", "load"])
def test_sigterm_while_the_store_hangs_in_a_restore(field: Field, moment: str) -> None:
    field.call(field.train(10, ttl_s=1))
    session = field.train(10**9, ttl_s=1, hang_at=f"before {moment}", early_s=0.5, last_s=1.5)
    session.until("hanging")
    ended_by(session, signal.SIGTERM, 143, 4.0)
    assert_ended_in_one_line(session)
    field.call(field.train(20, account="account_2", machine="two", ttl_s=1, wait_s=60))
    assert field.assert_whole().step == 20


def test_a_first_step_that_compiles_beyond_the_grace_is_left_and_costs_nothing(field: Field) -> None:
    field.call(field.train(20))
    session = field.train(10**9, compile_s=1000, ttl_s=1, last_s=1.0)
    session.until("compiling")
    ended_by(session, signal.SIGTERM, 143, 3.0)  # no step boundary can come
    assert_ended_in_one_line(session)
    field.call(field.train(40, account="account_2", machine="two", ttl_s=1, wait_s=60))
    assert field.assert_whole().step == 40


def assert_ended_in_one_line(session: Session) -> None:
    """The same for people and for tools, and with no traceback."""
    said = session.document()
    assert "SIGTERM" in said["message"] and " ".join(said["message"].split()) in " ".join(session.err.split())
    assert (said["schema"], said["error"], said["exit_code"]) == ("relay.error/1", "Terminated", 143)
    assert "Traceback" not in session.err


def test_sigterm_while_evaluating(field: Field) -> None:
    session = field.train(10**9, evaluate=1, evaluate_s=40)
    session.until("evaluating")
    ended_by(session, signal.SIGTERM, 143, 2 + LEAVING_S)
    assert_handed_over(field, at_least=10)


def test_sigterm_while_uploading_to_a_slow_store(field: Field) -> None:
    session = field.train(10**9, put_s=1.5, trace=1)
    session.until("before_put_weights.bin")
    trained = session.noted("step")[-1].number
    ended_by(session, signal.SIGTERM, 143, 2 * 1.5 + LEAVING_S)
    assert_handed_over(field, at_least=trained)


def test_sigterm_while_uploading_slower_than_the_grace_keeps_the_checkpoint_here(field: Field) -> None:
    session = field.train(10**9, put_s=1000, trace=1, ttl_s=2)
    session.until("before_put_weights.bin")
    ended_by(session, signal.SIGTERM, 143)
    assert field.step() == 0
    said = session.document()
    kept = int(Path(said["unsent"]).name.split(".")[0].removeprefix("step_"))
    assert kept >= session.noted("step")[-1].number - 1
    field.call(field.train(kept + 10, ttl_s=2))
    assert field.assert_whole().links[-1].from_step == 0 and field.step() == kept + 10


def test_a_second_sigint_stops_at_once_whatever_is_under_way(field: Field) -> None:
    session = field.train(10**9, put_s=1000, trace=1, ttl_s=2)
    session.until("before_put_weights.bin")
    session.send(signal.SIGINT)
    time.sleep(0.3)
    ended_by(session, signal.SIGINT, 130, LEAVING_S)
    field.call(field.train(20, account="account_2", machine="two", ttl_s=2, wait_s=60))
    assert field.assert_whole().step == 20


def test_sigint_once_commits_and_ends(field: Field) -> None:
    session = field.train(10**9)
    session.until("landed-commit")
    ended_by(session, signal.SIGINT, 130, LEAVING_S)
    assert_handed_over(field, at_least=10)


def test_sigusr1_is_a_planned_end(field: Field) -> None:
    session = field.train(10**9)
    session.until("landed-commit")
    ended_by(session, signal.SIGUSR1, 75, LEAVING_S)
    assert_handed_over(field, at_least=10)


def test_sigterm_to_a_whole_process_group_with_a_shell_in_it(field: Field, tmp_path: Path) -> None:
    """As Slurm and container runtimes do it: the shell dies first, the session still commits."""
    notes = tmp_path / "notes"
    words = ("run", "--run", RUN, "--target-steps", "1000000", "--checkpoint-every", "10")
    script = f"{sys.executable} -m tests.processes.program {' '.join(words)} evaluation.every_commits=0; echo over"
    environ = field.environment("one") | {"TOY_NOTES": str(notes)}
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=ROOT,
        env=environ | {"RELAY_SYNC_DIR": str(tmp_path / "sync")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    ) as shell:
        until(lambda: notes.exists() and notes.read_text().count("landed-commit") >= 2)
        os.killpg(shell.pid, signal.SIGTERM)
        said, _ = shell.communicate(timeout=GRACE_S)  # its output ends when the session, too, is gone
    assert "SIGTERM" in said and "over" not in said.splitlines()
    assert_handed_over(field, at_least=20)


def test_a_session_is_gone_soon_after_its_last_entry(field: Field) -> None:
    session = field.train(40)
    session.until("landed-release")
    released = session.noted("landed-release")[0].at
    session.wait()
    assert time.monotonic() - released <= LEAVING_S
