"""One holder at a time where a real model trains; races, turns and more are in tests/processes/test_holders.py."""

from __future__ import annotations

import signal

import pytest

from tests.acceptance.processes import Relay, run_args

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_session_suspended_past_its_lease_and_superseded_is_fenced(relay: Relay) -> None:
    asleep = relay.start(*run_args("fenced", "account_1", 100_000, 5, "lease.ttl_s=3"))
    relay.until_step(5, "fenced")
    asleep.send_signal(signal.SIGSTOP)
    taken = relay.status("fenced")["step"]
    relay.call(*run_args("fenced", "account_2", taken + 5, 5, "--wait", "1", "lease.ttl_s=3"), machine="two")
    before = relay.status("fenced")
    asleep.send_signal(signal.SIGCONT)
    asleep.communicate(timeout=60)
    assert asleep.returncode == 76
    after = relay.status("fenced")
    assert after["head"] == before["head"] and after["epoch"] == before["epoch"] == 2
    relay.call("verify", "--run", "fenced")
    relay.call(*run_args("whole", "account_1", taken + 5, 1000))
    assert relay.state_hash("fenced") == relay.state_hash("whole")
