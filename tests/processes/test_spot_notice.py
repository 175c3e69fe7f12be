"""A real session on a machine that its cloud takes back; a loopback double of the metadata address gives the notice."""

from __future__ import annotations

import json
import time

import pytest

from relay.core.ledger.frozen import SPOT_NOTICE
from tests.app.metadata_double import Cloud, serving
from tests.processes.field import Field

pytestmark = [pytest.mark.timeout(120)]


def test_a_notice_of_ec2_ends_a_real_session_with_a_commit_and_75(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = field.environment
    with serving(Cloud()) as cloud:
        more = {"RELAY_SPOT": "aws", "RELAY_SPOT_ADDRESS": cloud.address, "http_proxy": "http://127.0.0.1:9"}
        monkeypatch.setattr(field, "environment", lambda machine: plain(machine) | more)
        session = field.train(10**9)
        session.until("landed-commit", 2)
        trained = session.noted("step")[-1].number
        cloud.taken_by_aws()
        noticed = time.monotonic()
        field.call(session, code=75, limit=30)
        assert time.monotonic() - noticed < 20
    state = field.assert_whole()
    assert state.holder is None and state.step >= trained
    assert state.links[-1].end.startswith(SPOT_NOTICE)
    assert "aws" in state.links[-1].end and "118 s" in state.links[-1].end
    said = json.loads(session.out.read_text())
    assert said["exit_code"] == 75 and "aws" in said["message"] and "118 s" in said["message"]
    monkeypatch.setattr(field, "environment", plain)
    field.call(field.train(state.step + 10, account="account_2", machine="two"))
