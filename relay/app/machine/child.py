"""Runs a command as a child process and passes on the signals that end a session, each once."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from relay.core.errors import BadConfig
from relay.core.lease.signals import heeded


class NoSuchProgram(BadConfig):
    """The command cannot be started."""

    def __init__(self, program: str, error: OSError) -> None:
        super().__init__(f"Cannot start {program}: {error.strerror}.")
        self.program = program


def run_child(
    words: Sequence[str],
    environ: Mapping[str, str],
    cwd: Path,
    quiet: bool = False,
    stdout: IO[bytes] | None = None,
) -> int:
    """The exit code of the command, 128 + the signal's number if one ended it. Raises NoSuchProgram (78).

    A terminal sends Ctrl-C to both processes, so it is not passed on. quiet: the output of the command is dropped.
    stdout: the file for its standard output.
    """
    out = subprocess.DEVNULL if quiet else None
    try:
        child = subprocess.Popen(list(words), env=dict(environ), cwd=cwd, stdout=stdout or out, stderr=out)
    except OSError as error:
        raise NoSuchProgram(words[0], error) from error

    def passed_on(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT:
            child.send_signal(number)

    before = {number: signal.signal(number, passed_on) for number in heeded()}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code
