"""A whole session on a real terminal: its moving lines, the delay of Ctrl-C, the output that a notebook keeps."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from rich.cells import cell_len

from tests.processes.field import RUN, Field

pytestmark = pytest.mark.slow
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
WIDTH = 80
ANSWER_S = 5.0
"""From a signal to words about it, on a machine as busy as ours may be."""


@dataclass
class Terminal:
    """One process, and everything it wrote on its terminal."""

    process: subprocess.Popen[bytes]
    fd: int
    raw: bytes = field(default=b"")

    @property
    def text(self) -> str:
        """Without the codes that move the cursor or set colors."""
        return ESCAPE.sub("", self.raw.decode())

    def until(self, so: Callable[[], bool], limit: float = 60.0) -> float:
        """Read on until it is so; the seconds that took."""
        began = time.monotonic()
        while not so():
            assert self._more() and time.monotonic() - began < limit, self.text[-2000:]
        return time.monotonic() - began

    def ended(self) -> int:
        """Its exit code, once all is read."""
        while self._more():
            pass
        return self.process.wait(timeout=30)

    def _more(self) -> bool:
        try:
            if select.select([self.fd], [], [], 0.1)[0]:
                found = os.read(self.fd, 65_536)
                self.raw += found
                return bool(found)
        except OSError:  # the other end is closed
            return False
        return True


@contextmanager
def training(field: Field, **more: str) -> Iterator[Terminal]:
    """A session of thirty steps a second that commits every ten, on a terminal of 80 columns."""
    mine, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    environ = {k: v for k, v in field.environment("one").items() if k not in ("COLUMNS", "NO_COLOR", "JPY_PARENT_PID")}
    toy = {"TERM": "xterm-256color", "TOY_STEP_S": "0.03"}
    words = [
        "run",
        "--run",
        RUN,
        "--account",
        "account_1",
        "--target-steps",
        "1000000",
        "--new",
        "checkpoint.every_steps=10",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.processes.program", *words, "evaluation.every_commits=0"],
        cwd=field.home("one"),
        env=environ | toy | more,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, mine)
    finally:
        process.kill()
        process.wait()
        os.close(mine)


def test_a_session_on_a_terminal_moves_and_answers_ctrl_c_at_once(field: Field) -> None:
    with training(field) as terminal:
        terminal.until(lambda: field.step() >= 10)
        before = len(terminal.text)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.until(lambda: "Ctrl-C" in terminal.text[before:]) < ANSWER_S
        assert terminal.ended() == 130
    assert terminal.raw.rstrip().endswith(b".") and terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l")
    assert max(cell_len(part) for part in re.split(r"[\r\n]+", terminal.text)) <= WIDTH
    assert b"\x1b[90m" in terminal.raw and "steps/h" in terminal.text and "SIGINT" in terminal.text


def test_a_session_that_hangs_leaves_the_terminal_as_it_was_and_its_last_words_whole(field: Field) -> None:
    with training(field, TOY_STEP_S="1000", TOY_LAST_S="1", TOY_EARLY_S="1") as terminal:
        terminal.until(lambda: b"\x1b[?25l" in terminal.raw)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l") >= 0
    last = terminal.raw.rpartition(b"SIGINT")
    drawn = [one for one in ESCAPE.findall(last[2].decode()) if not one.endswith("m")]
    assert last[1] and not drawn, "nothing is drawn over the last words, whatever their color"


def test_a_notebook_s_cell_keeps_no_frame_although_it_has_a_terminal(field: Field) -> None:
    with training(field, JPY_PARENT_PID="1") as terminal:
        terminal.until(lambda: field.step() >= 10)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
    assert b"\x1b" not in terminal.raw and "Ctrl-C" in terminal.text
    assert len(re.findall(r"^step [\d,]+/", terminal.text, re.MULTILINE)) <= 2, "one line every half minute"
