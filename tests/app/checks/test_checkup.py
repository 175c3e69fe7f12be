"""doctor distinguishes a silent holder and a self-clearing folder from sound ones, and names the remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from relay.app.checks import checkup, doctor
from relay.core.ledger.state import Holder
from relay.people.status import RunStatus
from tests.people.views import NOW, trained


class Beat(NamedTuple):
    silent: float
    ok: bool
    said: str


@pytest.mark.parametrize(
    "beat",
    [
        Beat(20.0, True, "20 s ago"),
        Beat(120.0, False, "died"),
        Beat(181.0, False, "without a release"),
    ],
    ids=["alive", "silent", "dead"],
)
def test_a_silent_holder_is_told_with_how_to_take_over(beat: Beat) -> None:
    holder = Holder(
        session="2" * 32, account="account_2", epoch=7, since=NOW - 900, ttl_s=180.0, latest_end=None, target_steps=9
    )
    state = trained(holder=holder)
    view = RunStatus("p", "r", 20_000, NOW, state, sign_of_life=NOW - beat.silent)
    (found,) = checkup.lease(view)
    assert (found.ok, found.code) == (beat.ok, 0) and beat.said in found.text and "account_2" in found.text
    assert ("--wait 5" in found.advice) is not beat.ok
    assert not list(checkup.lease(replace(view, state=trained(holder=None))))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("file:///scratch/me/relay", "by age"),
        ("file:///var/tmp/relay", "by age"),
        ("file:///content/relay", "deleted with this machine"),
        ("file:///srv/relay", None),
        ("memory://relay", None),
    ],
)
def test_a_folder_that_clears_itself_is_no_place_for_a_ledger(address: str, said: str | None) -> None:
    assert [said in found.text for found in doctor.keeping(address) if said] == ([True] if said else [])
    assert bool(list(doctor.keeping(address))) is bool(said)
