"""Archiving and deleting a run: two acts a day apart, refused during training, resumable, never undone by a zombie
(docs/decisions/0013).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relay.core.errors import Exit, Fenced, LeaseHeld, PolicyRefused
from relay.core.lease import lease
from relay.core.ledger.atrest import RunArchived, RunDeleted
from relay.core.ledger.chain import Chain
from relay.core.ledger.changes import Archive, By, Delete, Noted, Refused, TookOver, Unarchive
from relay.core.ledger.entry import NewerFormat
from relay.core.ledger.frozen import SILENT, WAIT_S
from relay.core.ledger.ledger import MACHINE, RunLedger
from relay.core.ledger.rules import apply, succeeds
from relay.core.ledger.state import RunState
from relay.core.runs.archive import TooEarly, archive, mark_deleted, unarchive
from relay.core.session.session import push
from storage.base import Store
from storage.memory import MemoryStore
from tests.core.lab import PROJECT, RUN, Lab, down
from tests.core.making import Client, Clock, QuietRuntime, begun, genesis, id_of

NOW = 1.7e9


class NoLocks:
    """Every session is another machine's."""

    def hold(self, session: str) -> None: ...

    def is_dead(self, session: str) -> bool:
        return False

    def drop(self, session: str) -> None: ...


def put_away(client: Client) -> RunState:
    return archive(client.ledger, client.runtime, NoLocks(), session=id_of(9))


def resting(clock: Clock) -> tuple[MemoryStore, Client]:
    """A run with two commits, released and archived."""
    store = MemoryStore(clock=clock)
    _, client = begun(store)
    client.commit(5)
    client.commit(10)
    client.release()
    put_away(client)
    return store, client


def test_a_held_lease_refuses_to_archive_and_a_dead_holder_does_not() -> None:
    clock = Clock()
    _, client = begun(MemoryStore(clock=clock))
    client.commit(5)
    with pytest.raises(LeaseHeld, match="account_1"):
        put_away(client)
    clock.now += 1000.0
    state = put_away(client)
    assert state.archived and state.holder is None and state.epoch == 1, "I4: no epoch of its own"
    assert state.links[-1].end == SILENT
    assert state.incidents[-1].cause == "archived" and state.incidents[-1].text
    with pytest.raises(Fenced):
        client.commit(10)
    assert client.ledger.read().state.step == 5, "I5: the zombie wrote nothing"


def test_an_archived_run_takes_no_lease_and_comes_back() -> None:
    _, client = resting(Clock())
    assert put_away(client) == client.ledger.read().state, "archived twice is archived once"
    with pytest.raises(Refused, match="archived"):
        client.lease()
    unarchive(client.ledger, session=id_of(9))
    assert client.lease().state.step == 10
    assert "archived" not in client.ledger.read().state.model_dump(mode="json"), "it left no trace in later states"


def test_who_is_about_to_take_the_lease_is_told_of_an_archive_that_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry lands between a session's look at the run and its own entry."""
    store = MemoryStore(clock=Clock())
    _, client = begun(store)
    client.release()
    late, locks = Client(store, 2), NoLocks()
    real = lease._take

    def meanwhile(*args: Any) -> Any:
        put_away(client)
        return real(*args)

    monkeypatch.setattr(lease, "_take", meanwhile)
    wish = lease.LeaseRequest(late.session, late.account, 180.0, 100)
    with pytest.raises(RunArchived):
        lease.acquire(late.ledger, late.runtime, locks, wish)


def test_deletion_waits_a_day_of_the_stores_clock_whatever_is_asked() -> None:
    clock = Clock()
    store, client = resting(clock)
    clock.now += WAIT_S - 1
    with pytest.raises(TooEarly):
        mark_deleted(client.ledger, store, session=id_of(9))
    clock.now += 1
    state = mark_deleted(client.ledger, store, session=id_of(9))
    assert (state.step, state.head, state.retained) == (10, None, ()), "I6: the step is not taken back"
    with pytest.raises(RunDeleted):
        put_away(client)
    with pytest.raises(PolicyRefused):
        unarchive(client.ledger, session=id_of(9))


def test_two_who_delete_at_once_both_see_it_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    store, client = resting(clock)
    clock.now += WAIT_S
    other = Client(store, 2)
    real = other.ledger.check_epochs

    def meanwhile(checkpoints: Store) -> Any:
        seen = real(checkpoints)
        mark_deleted(client.ledger, store, session=id_of(8))
        return seen

    monkeypatch.setattr(other.ledger, "check_epochs", meanwhile)
    assert mark_deleted(other.ledger, store, session=id_of(9)) == client.ledger.read().state


def test_i6_nothing_follows_the_entry_that_deletes() -> None:
    deleted = apply(
        apply(_idle(), "archive", _plain(Archive()), _by(NOW)), "delete", _plain(Delete()), _by(NOW + WAIT_S)
    )
    for kind, change in (
        ("unarchive", Unarchive()),
        ("delete", Delete()),
        ("incident", Noted(cause="x", text="y", step=0)),
    ):
        with pytest.raises(Refused, match="deleted"):
            apply(deleted, kind, _plain(change), _by(NOW + 2 * WAIT_S))
    with pytest.raises(Refused, match="deleted"):
        succeeds(deleted, deleted.model_copy(update={"deleted": None}))


def test_the_rules_refuse_a_deletion_that_skips_a_step() -> None:
    idle = _idle()
    for kind, change, at in (
        ("delete", Delete(), NOW + 10 * WAIT_S),
        ("unarchive", Unarchive(), NOW),
        ("archive", Archive(took_over=TookOver(epoch=3, reason="x", seconds=1.0)), NOW),
    ):
        with pytest.raises(Refused):
            apply(idle, kind, _plain(change), _by(at))
    archived = apply(idle, "archive", _plain(Archive()), _by(NOW))
    with pytest.raises(Refused, match="long enough"):
        apply(archived, "delete", _plain(Delete()), _by(NOW + WAIT_S - 1))
    with pytest.raises(Refused, match="archived"):
        apply(archived, "incident", _plain(Noted(cause="x", text="y", step=0)), _by(NOW))


def test_an_older_client_stops_with_78_at_a_run_that_rests_and_goes_on_with_one_that_came_back() -> None:
    store, client = resting(Clock())
    older = replace(MACHINE, kinds=MACHINE.kinds - {"archive", "unarchive", "delete"})
    with pytest.raises(NewerFormat):
        Chain(store, client.ledger.names.ledger, older, client.runtime).read()
    unarchive(client.ledger, session=id_of(9))
    client.lease()
    client.commit(15)
    seen = Chain(store, client.ledger.names.ledger, older, client.runtime).read()
    assert seen and seen.state == client.ledger.read().state, "no field is left that it does not know"
    assert not {"archived", "deleted"} & seen.entry.state.keys()


def _idle() -> RunState:
    return apply(None, "genesis", _plain(genesis()), _by(NOW))


def _plain(change: object) -> dict[str, object]:
    return change.model_dump(mode="json")  # type: ignore[attr-defined,no-any-return]


def _by(at: float) -> By:
    return By(id_of(9), None, 0, at)


def test_what_waits_on_a_machine_is_neither_sent_into_an_archived_run_nor_lost(lab: Lab) -> None:
    session = lab.session("alice", machine="a", budget_s=40, target_steps=1000, every_steps=50)
    lab.world.at(lab.world.now + 20, lambda: setattr(session.store, "fail", down))
    kept = lab.run(session)
    assert kept.exit_code == Exit.UPLOAD_FAILED and kept.unsent is not None
    lab.world.now += 1000
    desk = lab.world.process()
    ledger = RunLedger(lab.shared, PROJECT, RUN, desk)
    state = archive(ledger, QuietRuntime(), NoLocks(), session=id_of(9))
    assert state.archived and state.step == kept.durable_step
    pusher = lab.session("alice", machine="a").start(push)
    lab.world.run()
    assert pusher.outcome.exit_code == Exit.POLICY and (kept.unsent / "state.json").exists()
    assert lab.state() == state, "half a run is not brought back"
    unarchive(ledger, session=id_of(9))
    again = lab.session("alice", machine="a").start(push)
    lab.world.run()
    assert again.outcome.exit_code == Exit.OK and lab.state().step > state.step
