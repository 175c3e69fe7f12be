"""Starts other programs as children: each ends with this process, and gets each of its signals once."""

# A notebook imports this before packages are installed, so modules that need one are imported where they are used.

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

from relay.core.clock import in_main_thread
from relay.core.errors import BadConfig

Child = subprocess.Popen[bytes]
PR_SET_PDEATHSIG = 1


class NoSuchProgram(BadConfig):
    """The command cannot be started."""

    def __init__(self, program: str, error: OSError) -> None:
        super().__init__(f"Cannot start {program}: {error.strerror}.")
        self.program = program


def start(
    words: Sequence[str],
    environ: Mapping[str, str],
    cwd: Path,
    output: IO[Any] | int | None = None,
    *,
    alone: bool = False,
    follows: bool = False,
    stdout: IO[Any] | None = None,
) -> Child:
    """Start a program. If this process is killed, the program gets SIGTERM, so that a session in it commits (Linux).

    output: for both of its streams. stdout: for the first of them. alone: in a process group of its own, which no
    terminal signals. follows: another process decides its end, so it ignores the signals that end a session, and is
    killed with this process.

    Raises NoSuchProgram (78).
    """
    from relay.core.lease.signals import REASONS

    tie = _tie(os.getpid(), signal.SIGKILL if follows else signal.SIGTERM)

    def before_exec() -> None:
        for number in REASONS if follows else ():
            signal.signal(number, signal.SIG_IGN)
        tie()

    try:
        return subprocess.Popen(
            list(words),
            env=dict(environ),
            cwd=cwd,
            stdin=subprocess.DEVNULL if follows else None,
            stdout=stdout or output,
            stderr=output,
            process_group=0 if alone else None,
            preexec_fn=before_exec,
        )
    except OSError as error:
        raise NoSuchProgram(words[0], error) from error


def start_aside(words: Sequence[str], environ: Mapping[str, str]) -> Child:
    """Start a program that outlives this process, and learns of its end from its closed standard input.

    It has a session of its own, and ignores the signals that end a session. Raises NoSuchProgram (78).
    """
    from relay.core.lease.signals import REASONS

    def before_exec() -> None:
        for number in REASONS:
            signal.signal(number, signal.SIG_IGN)

    try:
        return subprocess.Popen(
            list(words), env=dict(environ), stdin=subprocess.PIPE, start_new_session=True, preexec_fn=before_exec
        )
    except OSError as error:
        raise NoSuchProgram(words[0], error) from error


def run_child(
    words: Sequence[str],
    environ: Mapping[str, str],
    cwd: Path,
    output: IO[Any] | None = None,
    stdout: IO[Any] | None = None,
) -> int:
    """The exit code of the command, 128 + the signal's number if one ended it. Raises NoSuchProgram (78).

    A command in the terminal's foreground stays there: its Ctrl-C reaches both processes, and is not passed on. Any
    other command has a process group of its own. output: a file for both of its streams. stdout: for the first alone.
    """
    from relay.core.lease.signals import heeded

    shared = in_foreground()

    def send(child: Child, number: int) -> None:
        if not (shared and number == signal.SIGINT):
            child.send_signal(number)

    with forwarding(heeded(), send) as started:
        child = start(words, environ, cwd, output, alone=not shared, stdout=stdout)
        started(child)
        code = child.wait()
    return 128 - code if code < 0 else code


@contextmanager
def forwarding(
    numbers: Iterable[signal.Signals], send: Callable[[Child, int], None]
) -> Iterator[Callable[[Child], None]]:
    """Pass each of these signals on to a child exactly once, also one that comes before its start.

    Yields a function to call with the started child. A thread other than the main one gets no signals.
    """
    running: list[Child] = []
    early: list[int] = []

    def received(number: int, frame: FrameType | None = None) -> None:
        if not running:
            early.append(number)
        elif running[0].poll() is None:
            send(running[0], number)

    def started(child: Child) -> None:
        running.append(child)
        for number in early:
            received(number)

    if not in_main_thread():
        yield started
        return
    before = {number: signal.signal(number, received) for number in numbers}
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def in_foreground() -> bool:
    """Whether a terminal's Ctrl-C reaches this process and the children of its group."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _tie(parent: int, number: int) -> Callable[[], None]:
    """What a child calls to get this signal once its parent is gone. Other systems than Linux cannot do that."""
    if sys.platform != "linux":
        return lambda: None
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(number))
        if os.getppid() != parent:
            os.kill(os.getpid(), number)

    return tie
