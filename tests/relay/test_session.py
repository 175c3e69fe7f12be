"""A session's ends all lead to one chain of states: the one an unbroken run has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.errors import Exit
from tests.relay.sessions import Lab
from tests.relay.toy import hash_of, state_at


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.world.close()


def unbroken(step: int) -> str:
    return hash_of(step, state_at(step))


def test_one_session_reaches_its_target(lab: Lab) -> None:
    outcome = lab.run(lab.session())
    assert outcome.exit_code == Exit.OK, outcome.message
    state = lab.state()
    assert (state.step, state.head.state_hash) == (100, unbroken(100))
    assert state.holder is None and state.links[-1].end == "target reached"
