"""Sessions that clean up: retired files go an hour later, full stores and lists brick no run, old signs go (P8)."""

from __future__ import annotations

import pytest

from relay.app.checks.verify import quick_look
from relay.core.checkpoint.collect import Housekeeper, sweep_signs
from relay.core.checkpoint.retention import GRACE_S, ROOM, Keep
from relay.core.lease.heartbeat import request_stop
from relay.core.ledger.frozen import MAX_RETAINED
from relay.core.ledger.ledger import RunLedger
from relay.core.names import Names
from storage.base import Denied, QuotaExceeded
from storage.memory import MemoryStore
from tests.core.lab import PROJECT, RUN, Lab, said
from tests.core.story import NAMES


def test_a_session_cleans_up_behind_itself_an_hour_later(lab: Lab) -> None:
    lab.run(lab.session(target_steps=5000, every_steps=500, keep=Keep(2)))
    steps = sorted({NAMES.parse_checkpoint(stat.name)[0] for stat in lab.shared.list(NAMES.checkpoints)})
    assert steps[-1] == 5000 and len(steps) > 2, "those of the last hour are still there"
    lab.world.now += 2 * GRACE_S
    lab.run(lab.session("bob", target_steps=6000, every_steps=500, keep=Keep(2)))
    left = sorted({NAMES.parse_checkpoint(stat.name)[0] for stat in lab.shared.list(NAMES.checkpoints)})
    assert len(left) <= 5
    assert {c.step for c in lab.state().retained} == {5500, 6000}


def test_a_store_that_is_full_of_retired_files_is_cleaned_though_nothing_can_be_written(lab: Lab) -> None:
    """Writes and the clock, which writes, fail until something is deleted."""
    lab.run(lab.session(target_steps=100, every_steps=10, keep=Keep(2)))
    before = len(list(lab.shared.list(NAMES.checkpoints)))
    lab.world.now += 2 * GRACE_S
    session = lab.session("bob", target_steps=300, every_steps=50, keep=Keep(2), patience_s=200)

    def full(verb: str, name: str) -> None:
        crowded = len(list(lab.shared.list(NAMES.checkpoints))) >= before - 4
        if verb in ("put", "put_if_absent", "now") and crowded:
            raise QuotaExceeded("no space left")

    lab.world.at(lab.world.now + 2, lambda: setattr(session.store, "fail", full))
    outcome = lab.run(session)
    assert lab.state().step == 300, said(outcome)


@pytest.mark.slow
def test_a_list_of_retained_checkpoints_never_gets_so_full_that_it_bricks_the_run(lab: Lab) -> None:
    last = 10 * (MAX_RETAINED + 4)
    outcome = lab.run(lab.session(target_steps=last, every_steps=10, keep=Keep(60)))
    assert outcome.durable_step == last and len(lab.state().retained) <= ROOM


@pytest.mark.slow
def test_a_full_list_is_retired_from_before_the_next_commit(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Housekeeper, "_retire", lambda self: None)
        lab.run(lab.session(target_steps=10 * MAX_RETAINED, every_steps=10))
    assert len(lab.state().retained) == MAX_RETAINED
    last = 10 * (MAX_RETAINED + 4)
    assert lab.run(lab.session("bob", target_steps=last, every_steps=10)).durable_step == last


def test_a_look_under_which_checkpoints_are_retired_and_deleted_calls_none_of_them_damaged(lab: Lab) -> None:
    """As for `doctor` on a machine that slept; a retained checkpoint that is gone is still reported."""
    lab.run(lab.session(target_steps=40, keep=Keep(9)))
    before = lab.state()
    lab.run(lab.session("bob", target_steps=100, keep=Keep(2)))
    lab.world.now += 2 * GRACE_S
    lab.run(lab.session("bob", target_steps=120, keep=Keep(2)))
    ledger = RunLedger(lab.shared, PROJECT, RUN, lab.world.process())
    assert not any(lab.shared.list(f"{NAMES.checkpoints}step_10."))
    assert quick_look(ledger, before, lab.shared) == []
    lab.damage("step_120.e3/ema.json", lambda data: None)
    assert [(c.step, c.ok) for c in quick_look(ledger, lab.state(), lab.shared)] == [(110, True), (120, False)]


def signs(lab: Lab) -> set[str]:
    found = (stat.name.rpartition("/")[2] for stat in lab.shared.list(f"runs/{PROJECT}/{RUN}/"))
    return {name for name in found if name.startswith(("heartbeat.", "stop."))}


def test_old_signs_of_life_are_swept_and_the_present_ones_stay(lab: Lab) -> None:
    lab.run(lab.session(target_steps=2000, every_steps=500))
    request_stop(lab.shared, Names(PROJECT, RUN), 1, "late")
    assert signs(lab) == {"heartbeat.1", "stop.1"}
    lab.run(lab.session("bob", target_steps=4000, every_steps=500))
    assert signs(lab) == {"heartbeat.2"}


def test_only_exact_names_below_the_epoch_are_swept() -> None:
    store = MemoryStore()
    keep = ["heartbeat.3", "stop.3", "heartbeat.4", "heartbeat.02", "heartbeat.1.bak", "ledger/heartbeat.1"]
    for name in (*keep, "heartbeat.2", "stop.0"):
        store.put(NAMES.home + name, b"x")
    sweep_signs(store, NAMES, 3)
    assert {stat.name for stat in store.list("")} == {NAMES.home + name for name in keep}


def test_a_sweep_that_fails_harms_nothing(lab: Lab) -> None:
    lab.run(lab.session(target_steps=1000, every_steps=500))
    session = lab.session("bob", target_steps=2000, every_steps=500)

    def fail(verb: str, name: str) -> None:
        if verb == "delete" and "heartbeat" in name:
            raise Denied("locked")

    session.store.fail = fail
    assert lab.run(session).exit_code == 0
    assert lab.state().step == 2000
