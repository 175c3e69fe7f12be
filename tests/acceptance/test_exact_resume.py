"""However a run is cut into sessions, and however those end, the state at step N is the same bytes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from tests.acceptance.processes import Relay, run_args

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
KILLS = 5
"""Where a real model trains; tests/processes/test_random_kills.py has many more, on a toy."""


@pytest.mark.parametrize(("task", "sessions"), [("sudoku4", 5), ("sudoku4_att", 3)])
def test_i7_sessions_under_as_many_accounts_equal_one_unbroken_session(relay: Relay, task: str, sessions: int) -> None:
    for turn in range(1, sessions + 1):
        relay.call(*run_args("many", f"account_{turn}", 4 * turn, 4, f"task={task}"), machine=f"m{turn}")
    anew = task == "sudoku4"  # an interpreter of its own for one of them: it takes as long as all forked sessions
    relay.call(*run_args("one", "account_1", 4 * sessions, 4 * sessions, f"task={task}"), anew=anew)
    status = relay.status("many")
    assert status["step"] == 4 * sessions
    assert [link["account"] for link in status["links"]] == [f"account_{n + 1}" for n in range(sessions)]
    steps = [(4 * n, 4 * n + 4) for n in range(sessions)]
    assert [(link["from_step"], link["to_step"]) for link in status["links"]] == steps
    assert {link["certified"] for link in status["links"][1:]} == {"exact"}
    assert relay.state_hash("many") == relay.state_hash("one")
    relay.call("verify", "--run", "many")


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 75)])
def test_a_session_ended_by_a_signal_commits_and_the_next_equals_unbroken(
    relay: Relay, how: signal.Signals, code: int
) -> None:
    session = relay.start(*run_args("cut", "account_1", 100_000, 5))
    relay.until_step(5, "cut")
    session.send_signal(how)
    session.communicate(timeout=60)
    assert session.returncode == code
    durable = relay.status("cut")["step"]
    assert 5 <= durable < 100_000
    assert relay.status("cut")["holder"] is None
    relay.call(*run_args("cut", "account_2", durable + 5, 1000), machine="two")
    relay.call(*run_args("whole", "account_1", durable + 5, 1000))
    assert relay.state_hash("cut") == relay.state_hash("whole")
    assert relay.status("cut")["links"][-1]["certified"] == "exact"


def test_a_session_ended_by_its_budget_is_gone_in_time_and_hands_off(relay: Relay) -> None:
    started = time.monotonic()
    relay.call(*run_args("short", "account_1", 100_000, 50, "--budget-minutes", "0.25"), code=75)
    assert time.monotonic() - started <= 0.25 * 60
    durable = relay.status("short")["step"]
    assert durable > 0
    relay.call(*run_args("whole", "account_1", durable, 1_000_000))
    assert relay.state_hash("short") == relay.state_hash("whole")


def test_sessions_killed_at_random_moments_lose_at_most_the_uncommitted_steps(relay: Relay) -> None:
    seed = int(os.environ.get("RELAY_SEED", str(random.SystemRandom().randrange(10**6))))
    print(f"replay with RELAY_SEED={seed}")
    chance = random.Random(seed)
    every, before, advanced = 4, 0, 0
    for kill in range(KILLS):
        known = entries(relay, "killed")
        session = relay.start(*run_args("killed", f"account_{kill % 3 + 1}", 100_000, every))
        landed = known + chance.choice([0, 1, 1, 2, 3])  # killed in the start, after the lease, or after commits
        until(lambda: entries(relay, "killed") >= landed)  # noqa: B023 (called at once)
        time.sleep(chance.uniform(0.0, 1.0))  # a commit and its steps take less
        assert session.poll() is None, "it ended before it was killed"
        session.kill()
        session.communicate()
        step = relay.status("killed")["step"] if entries(relay, "killed") else 0
        assert step >= before, f"seed {seed}: went back from {before} to {step}"
        advanced += step > before
        before = step
    assert advanced >= 1, f"seed {seed}: only {advanced} of {KILLS} had committed"
    relay.call(*run_args("killed", "account_1", before + every, every))
    relay.call(*run_args("whole", "account_1", before + every, 1_000_000))
    assert relay.state_hash("killed") == relay.state_hash("whole"), f"seed {seed}"
    relay.call("verify", "--run", "killed")


def entries(relay: Relay, run: str) -> int:
    """Ledger entries of a run, counted in the folder."""
    return len(list((relay.folder / "store" / "runs").glob(f"*/{run}/ledger/*.json")))


def until(what: Callable[[], bool], limit: float = 120) -> None:
    """Poll until it holds."""
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)
