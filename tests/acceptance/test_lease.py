"""One holder at a time, in real processes: races, suspension, takeover."""

from __future__ import annotations

import signal
import time

import pytest

from tests.acceptance.processes import Relay, run_args

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_of_two_sessions_started_at_once_one_trains_and_the_other_touches_nothing(relay: Relay) -> None:
    relay.call("register", "account_1", "John's lab machine")
    args = [run_args("race", f"account_{n}", 60, 20) for n in (1, 2)]
    both = [relay.start(*arg, machine=f"m{n}") for n, arg in enumerate(args)]
    for process in both:
        process.communicate(timeout=120)
    assert sorted(process.returncode for process in both) == [0, 73]
    status = relay.status("race")
    assert status["epoch"] == 1 and status["links_total"] == 1


def test_with_wait_the_second_session_goes_on_after_the_first(relay: Relay) -> None:
    first = relay.start(*run_args("turns", "account_1", 60, 20))
    relay.wait_for(lambda status: status["holder"] is not None, "turns")
    relay.call(*run_args("turns", "account_2", 80, 20, "--wait", "2"), machine="two")
    first.communicate(timeout=60)
    assert first.returncode == 0
    assert [link["account"] for link in relay.status("turns")["links"]] == ["account_1", "account_2"]


def test_a_session_suspended_past_its_lease_and_superseded_is_fenced(relay: Relay) -> None:
    asleep = relay.start(*run_args("fenced", "account_1", 100_000, 20, "lease.ttl_s=3"))
    relay.wait_for(lambda status: status["step"] >= 20, "fenced")
    asleep.send_signal(signal.SIGSTOP)
    taken = relay.status("fenced")["step"]
    relay.call(*run_args("fenced", "account_2", taken + 20, 20, "--wait", "1", "lease.ttl_s=3"), machine="two")
    before = relay.status("fenced")
    asleep.send_signal(signal.SIGCONT)
    asleep.communicate(timeout=60)
    assert asleep.returncode == 76
    after = relay.status("fenced")
    assert after["head"] == before["head"] and after["epoch"] == before["epoch"] == 2
    relay.call("verify", "--run", "fenced")
    relay.call(*run_args("whole", "account_1", taken + 20, 1000))
    assert relay.state_hash("fenced") == relay.state_hash("whole")


def test_a_session_suspended_past_its_lease_goes_on_if_nobody_took_it(relay: Relay) -> None:
    asleep = relay.start(*run_args("nap", "account_1", 120, 20, "lease.ttl_s=3"))
    relay.wait_for(lambda status: status["step"] >= 20, "nap")
    asleep.send_signal(signal.SIGSTOP)
    time.sleep(5)
    asleep.send_signal(signal.SIGCONT)
    asleep.communicate(timeout=90)
    assert asleep.returncode == 0
    assert relay.status("nap")["epoch"] == 1
