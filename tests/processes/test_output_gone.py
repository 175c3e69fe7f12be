"""The reader of a session's output, or its terminal, goes away: no training is lost, and the exit code stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import pytest

from tests.processes.field import RUN, Field

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.usefixtures("hangups")]


def command(target: int, *more: str) -> list[str]:
    """A session that commits every ten steps and prints each step."""
    words = ["run", "--run", RUN, "--account", "account_1", "--new", "--target-steps", str(target)]
    settings = ["checkpoint.every_steps=10", "evaluation.every_commits=0", "--progress-seconds", "0.1"]
    return [sys.executable, "-m", "tests.processes.program", *words, *settings, *more]


def environment(field: Field) -> dict[str, str]:
    return {**field.environment("one"), "TOY_STEP_S": "0.03", "TERM": "xterm-256color"}


def assert_handed_over(field: Field, at_least: int) -> None:
    """The lease was given back, nothing counts as a failure, and the log reports once where output was lost."""
    state = field.assert_whole()
    assert state.holder is None and state.step >= at_least and not state.halted
    logs = "".join(path.read_text() for path in field.home("one").glob("sync/logs/*.log"))
    assert logs.count("Nothing more can be written to stderr") == 1


@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_a_reader_that_goes_away_ends_no_session(field: Field, flag: list[str]) -> None:
    process = subprocess.Popen(
        command(100, *flag),
        cwd=field.home("one"),
        env=environment(field),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(90) == 0
    assert_handed_over(field, 100)


@pytest.mark.parametrize("mode", ["w", "r"])
def test_a_full_disk_or_a_closed_descriptor_under_the_output_ends_no_session(field: Field, mode: str) -> None:
    with Path("/dev/full" if mode == "w" else os.devnull).open(mode) as target:
        code = subprocess.run(
            command(40), cwd=field.home("one"), env=environment(field), stdout=target, stderr=target, check=False
        ).returncode
    assert code == 0
    assert_handed_over(field, 40)


@contextmanager
def on_a_terminal(
    field: Field, target: int, *, outlives: bool = False
) -> Iterator[tuple[subprocess.Popen[bytes], FileIO]]:
    """A session whose controlling terminal is ours to close; with `outlives` it was started as nohup does."""
    mine, theirs = os.openpty()

    def settle() -> None:
        os.setsid()
        os.close(os.open(os.ttyname(theirs), os.O_RDWR))  # the first terminal it opens controls it
        if outlives:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = subprocess.Popen(
        command(target),
        cwd=field.home("one"),
        env=environment(field),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=settle,
    )
    os.close(theirs)
    with FileIO(mine) as terminal:
        try:
            yield process, terminal
        finally:
            process.kill()
            process.wait()


def read_until(terminal: FileIO, words: bytes) -> None:
    raw = b""
    while words not in raw:
        raw += terminal.read(65_536)


def test_a_terminal_that_closes_ends_the_session_with_a_commit(field: Field) -> None:
    with on_a_terminal(field, 10**6) as (process, terminal):
        read_until(terminal, b"is committed")
        terminal.close()
        assert process.wait(60) == 143
    assert_handed_over(field, 11)
    assert field.assert_whole().links[-1].end == "terminated (SIGTERM)"


def test_a_session_under_nohup_outlives_its_terminal(field: Field) -> None:
    with on_a_terminal(field, 150, outlives=True) as (process, terminal):
        read_until(terminal, b"is committed")
        terminal.close()
        assert process.wait(90) == 0
    assert_handed_over(field, 150)
