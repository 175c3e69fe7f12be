"""Forked loops do not wait without end: a hung process is named, a port is reserved, a commit is not overtaken."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time
from pathlib import Path

import pytest

from relay.core.checkpoint.committer import Committer, Item
from tests.torch import ownloops
from tests.torch.ownloops import Ending, Hung, child, pair, relayed

pytestmark = pytest.mark.slow


def worker_sleeps() -> None:
    time.sleep(600)


def second_sleeps() -> None:
    """With a process of its own, such as a loader's worker."""
    if os.environ["RANK"] == "1":
        print("last words")
        if os.fork() == 0:
            worker_sleeps()
        time.sleep(600)


def test_a_process_that_hangs_is_named_and_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownloops, "LIMIT_S", 1.0)
    reader, writer = os.pipe()
    with pytest.raises(Hung) as caught:
        pair(second_sleeps, tmp_path)
    first, second = caught.value.__notes__
    assert first.startswith("Process 0 had ended") and second.startswith("Process 1 still ran")
    for words in ("last words", second_sleeps.__name__, worker_sleeps.__name__):
        assert words in second
    os.close(writer)
    assert select.select([reader], [], [], 10)[0] and os.read(reader, 1) == b"", "no process holds the other end"
    os.close(reader)


def test_no_other_program_gets_the_port_of_a_pair(tmp_path: Path) -> None:
    def take() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))

    assert all(str(one).startswith(f"OSError: [Errno {errno.EADDRINUSE}]") for one in pair(take, tmp_path))


def test_a_session_ends_also_if_its_commits_begin_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit of step 5 would replace a waiting one of step 4, and wait for a step that is never made."""
    take = Committer._take

    def late(committer: Committer) -> Item | None:
        time.sleep(0.2)
        return take(committer)

    monkeypatch.setattr(Committer, "_take", late)
    monkeypatch.setattr(ownloops, "LIMIT_S", 20.0)
    monkeypatch.setenv("RELAY_EPHEMERAL", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert child(lambda: relayed("ana", Ending("SIGKILL", 5)), tmp_path) == -signal.SIGKILL
