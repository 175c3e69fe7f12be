"""A session that meets this machine's own earlier one: named, looked on at, replaced; nothing trained is lost."""

from __future__ import annotations

import json
import re
import select
import signal
from pathlib import Path

import pytest

from relay.core.ledger.frozen import ASKED_TO_STOP
from tests.acceptance.processes import Forked, Relay, run_args

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
ENDLESS = run_args("r", "account_1", 1_000_000, 5, "--progress-seconds", "1")


def words(process: Forked) -> str:
    """Its output for people so far."""
    return Path(process._out).with_suffix(".err").read_text()


def until_said(process: Forked, pattern: str, limit: float = 60) -> None:
    for _ in range(int(limit * 10)):
        if re.search(pattern, words(process)):
            return
        assert process.poll() is None, words(process)
        select.select([], [], [], 0.1)
    raise AssertionError(f"no {pattern}:\n{words(process)}")


def test_refused_with_both_choices_then_looked_on_at_then_replaced_then_killed(relay: Relay) -> None:
    first = relay.start(*ENDLESS)
    assert isinstance(first, Forked)
    relay.until_step(5, "r")

    refused = relay.call(*ENDLESS, "--json", code=73)
    text = json.loads(refused)["message"]
    assert str(first.pid) in text and "--attach" in text and "--replace" in text

    looking = relay.start(*ENDLESS, "--attach")
    assert isinstance(looking, Forked)
    until_said(looking, r"step \d+/1,000,000")
    looking.send_signal(signal.SIGINT)
    looking.communicate(timeout=30)
    assert looking.returncode == 130 and str(first.pid) in words(looking)
    assert first.poll() is None, "nothing was ended"

    looking = relay.start(*ENDLESS, "--attach", "--json")
    assert isinstance(looking, Forked)
    until_said(looking, str(first.pid))
    second = relay.start(*ENDLESS, "--replace")
    assert isinstance(second, Forked)
    first.communicate(timeout=60)
    assert first.returncode == 75, "it committed and handed off"
    seen = json.loads(looking.communicate(timeout=60)[0])
    assert looking.returncode == seen["exit_code"] == 75
    state = relay.state("r")
    assert state is not None and state.links[0].end == ASKED_TO_STOP
    handed_over = state.links[0].to_step
    relay.until_step(handed_over + 5, "r")

    looking = relay.start(*ENDLESS, "--attach")
    assert isinstance(looking, Forked)
    until_said(looking, str(second.pid))
    second.kill()
    looking.communicate(timeout=30)
    assert looking.returncode == 74 and str(second.pid) in words(looking)
    relay.call(*ENDLESS, "--attach")
    state = relay.state("r")
    assert state is not None
    relay.call(*run_args("r", "account_1", state.step + 5, 5))  # the killed one may have come far
    state = relay.state("r")
    assert state is not None and state.links[1].from_step == handed_over, "no step was lost or made again"
