"""A forked child, such as a loader's worker, neither keeps a killed session alive nor answers for it (P13)."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from relay.core.clock import RealRuntime
from relay.core.lease.host import FileHostLocks
from relay.core.lease.signals import StopSignal, listening, unheard

SESSION = "a" * 32


def forked(body: Callable[[], None]) -> int:
    """The pid of a child that runs the body and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(0)
    return pid


def test_a_killed_parent_with_a_live_child_is_dead(tmp_path: Path) -> None:
    reader, writer = os.pipe()

    def parent() -> None:
        FileHostLocks(tmp_path, "boot").hold(SESSION)
        os.write(writer, str(forked(lambda: time.sleep(60))).encode())
        time.sleep(60)

    pid = forked(parent)
    assert select.select([reader], [], [], 60)[0]
    child = int(os.read(reader, 20))
    locks = FileHostLocks(tmp_path, "boot")
    try:
        assert not locks.is_dead(SESSION), "it lives"
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert locks.is_dead(SESSION), "its child has no part in the lock"
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(reader)
        os.close(writer)


def test_a_child_that_ends_leaves_the_parent_s_lock(tmp_path: Path) -> None:
    locks = FileHostLocks(tmp_path, "boot")
    locks.hold(SESSION)
    os.waitpid(forked(lambda: None), 0)
    assert not FileHostLocks(tmp_path, "boot").is_dead(SESSION)
    locks.drop(SESSION)


@pytest.mark.parametrize("around", [lambda: listening(StopSignal(), RealRuntime(), lambda error: None), unheard])
def test_a_child_ends_by_sigterm_as_without_a_session(around: Callable[[], AbstractContextManager[None]]) -> None:
    """multiprocessing ends its processes so, and waits for them without end."""
    reader, writer = os.pipe()

    def child() -> None:
        os.write(writer, b"1")
        time.sleep(60)

    former = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with around():
            pid = forked(child)
            os.read(reader, 1)
            os.kill(pid, signal.SIGTERM)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, former)
        os.close(reader)
        os.close(writer)


def test_signals_of_a_child_do_not_reach_the_session(tmp_path: Path) -> None:
    heard: list[object] = []
    stop = StopSignal()
    with listening(stop, RealRuntime(), lambda error: None, heard.append):
        os.waitpid(forked(lambda: os.kill(os.getpid(), signal.SIGINT)), 0)
        time.sleep(0.3)
    assert heard == [] and stop.reason is None
