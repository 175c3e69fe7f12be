"""Sessions whose steps two processes share (gloo, on a CPU): every end gives its exit code and leaves no process."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relay.core.ledger import frozen
from relay.core.settings.origins import LEADER
from tests.acceptance.processes import Forked, Relay, run_args

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
RUN = "shared"
LEADER_PROGRAM = """
import os, sys
from relay.torch import together
from relay.app.cli import main
os.setpgid(0, 0)
together.ANSWER_S = 2.0
sys.executable = os.environ["FOLLOWERS_PYTHON"]
main()
"""
"""A session in a process group of its own, as a shell starts it."""


@dataclass
class Sessions:
    """Sessions of two processes on one store."""

    relay: Relay
    forking: tuple[Path, dict[str, str]]
    """A `python` that forks a warm interpreter, and its variables."""

    def start(self, *words: str, run: str = RUN, python: str = "", processes: str = "2") -> Forked:
        """`python`: the interpreter of the followers; by default one that starts in milliseconds."""
        relay, home = self.relay, self.relay.environment("one")
        env = {**home, **self.forking[1], "FOLLOWERS_PYTHON": python or str(self.forking[0])}
        env["RELAY_PROCESSES"] = processes
        argv = [*run_args(run, "account_1", 100_000, 5), "--json", *words]
        out = relay.folder / f"out-{len(relay.started)}"
        session = relay.warm.start(argv, env, env["HOME"], out, ["-c", LEADER_PROGRAM])
        relay.started.append(session)
        return session

    def ended(self, session: Forked, code: int) -> dict[str, Any]:
        """Its document, once it has ended with that code and no process is left."""
        out, err = session.communicate(timeout=60)
        assert session.returncode == code, f"{out}\n{err}\n{self.follower_output()}"
        until(lambda: not followers(session))
        return dict(json.loads(out))

    def committed(self, end: str, least: int) -> int:
        """The durable step; the lease is given back."""
        state = self.relay.state(RUN)
        assert state is not None and (state.holder, state.links[-1].end) == (None, end) and state.step >= least
        return state.step

    def assert_unbroken(self, step: int) -> None:
        """It has the bytes of one session of two processes."""
        self.ended(self.start("--until-step", str(step), run="whole"), 75)
        assert self.relay.state_hash(RUN) == self.relay.state_hash("whole")

    def follower_output(self) -> str:
        """Of all followers."""
        logs = (self.relay.folder / "machines").glob("*/sync/logs/*.rank1")
        return "\n".join(log.read_text() for log in logs)


@pytest.fixture
def sessions(relay: Relay, tmp_path: Path) -> Sessions:
    return Sessions(relay, relay.warm.python(tmp_path / "bin"))


def followers(session: Forked) -> list[int]:
    """Processes that know it as their leader."""
    mark, found = f"{LEADER}={session.pid}\0".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.name != str(session.pid) and mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return found


def until(what: Callable[[], object], limit: float = 60) -> None:
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_budget_ends_both_in_time_and_hands_off(sessions: Sessions) -> None:
    began = time.monotonic()
    done = sessions.ended(sessions.start("--budget-minutes", "0.15"), 75)
    assert time.monotonic() - began <= 0.15 * 60
    assert done["durable_step"] == sessions.committed(frozen.BUDGET_USED, 1)


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_the_whole_group_arrives_once(sessions: Sessions, how: signal.Signals, code: int) -> None:
    """A terminal's Ctrl-C; a second one would end the session without a commit."""
    session = sessions.start()
    sessions.relay.until_step(5, RUN)
    os.killpg(session.pid, how)
    sessions.ended(session, code)
    sessions.committed(frozen.TERMINATED if code == 143 else frozen.INTERRUPTED, 5)


def test_a_process_that_is_killed_ends_the_session_with_a_commit(sessions: Sessions) -> None:
    session = sessions.start()
    sessions.relay.until_step(5, RUN)
    (follower,) = followers(session)
    os.kill(follower, signal.SIGKILL)
    sessions.ended(session, 75)
    sessions.assert_unbroken(sessions.committed(frozen.PROCESS_LOST, 5))
    said = session.communicate()[1]
    assert "2 of 2" in said and "SIGKILL" in said and ".rank1" in said


def test_a_process_that_hangs_or_whose_leader_is_killed_is_ended(sessions: Sessions) -> None:
    session = sessions.start(python=sys.executable)
    sessions.relay.until_step(5, RUN)
    (follower,) = followers(session)
    os.kill(follower, signal.SIGSTOP)
    sessions.ended(session, 75)
    step = sessions.committed(frozen.PROCESS_LOST, 5)

    session = sessions.start(python=sys.executable)
    sessions.relay.until_step(step + 5, RUN)
    (follower,) = followers(session)
    os.kill(follower, signal.SIGSTOP)  # so that it cannot notice anything by itself
    session.kill()
    session.communicate()
    until(lambda: not followers(session), limit=5)


def test_a_process_that_cannot_start_is_named_before_the_lease(sessions: Sessions, tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho no such card\nexit 3\n")
    failing.chmod(0o755)
    done = sessions.ended(sessions.start(python=str(failing)), 78)
    assert "exit code 3" in done["message"] and "2 of 2" in done["message"]
    assert "no such card" in sessions.follower_output()
    assert sessions.relay.state(RUN) is None


@pytest.mark.parametrize(("how", "code"), [(None, 78), (signal.SIGTERM, 143)])
def test_a_process_that_hangs_while_it_starts_takes_no_lease(
    sessions: Sessions, tmp_path: Path, how: signal.Signals | None, code: int
) -> None:
    """Within the budget, or by a signal."""
    hanging = tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nexec sleep 1000\n")
    hanging.chmod(0o755)
    began, minutes = time.monotonic(), 100.0 if how else 0.1
    session = sessions.start("--budget-minutes", str(minutes), python=str(hanging))
    until(lambda: followers(session))
    if how:
        os.killpg(session.pid, how)
    done = sessions.ended(session, code)
    assert how or (60 * minutes <= time.monotonic() - began < 60 * minutes + 20 and ".rank1" in done["message"])
    assert sessions.relay.state(RUN) is None


def test_a_number_that_does_not_divide_the_batch_is_refused(sessions: Sessions) -> None:
    done = sessions.ended(sessions.start(processes="3"), 78)
    assert done["error"] == "BadConfig" and "RELAY_PROCESSES=3" in done["message"]
    assert sessions.relay.state(RUN) is None
