"""Archiving and deleting a run: two acts a day apart, refused while anybody trains, resumable, never undone by a zombie
(docs/decisions/0013)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay import lease
from relay.archiving import archive, mark_deleted, unarchive
from relay.chain import Chain
from relay.changes import Archive, By, Delete, Noted, Refused, TookOver, Unarchive
from relay.errors import Exit, Fenced, LeaseHeld, PolicyRefused
from relay.ledger import MACHINE, NewerFormat, RunLedger
from relay.resting import WAIT_S
from relay.rules import apply, succeeds
from relay.session import push
from relay.state import RunState
from storage.base import Denied, Ref, Store
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.relay.cli import Desk, wrap_stores
from tests.relay.runs import Client, Clock, QuietRuntime, begun, genesis, id_of
from tests.relay.sessions import PROJECT, RUN, Lab, down

NOW = 1.7e9


class NoLocks:
    """Every session is another machine's."""

    def hold(self, session: str) -> None: ...

    def is_dead(self, session: str) -> bool:
        return False

    def drop(self, session: str) -> None: ...


def put_away(client: Client, store: Store) -> RunState:
    return archive(client.ledger, store, client.runtime, NoLocks(), session=id_of(9))


def resting(clock: Clock) -> tuple[MemoryStore, Client]:
    """A run with two commits, released and archived."""
    store = MemoryStore(clock=clock)
    _, client = begun(store)
    client.commit(5)
    client.commit(10)
    client.release()
    put_away(client, store)
    return store, client


def test_a_held_lease_refuses_to_archive_and_a_dead_holder_does_not() -> None:
    clock = Clock()
    store, client = begun(MemoryStore(clock=clock))
    client.commit(5)
    with pytest.raises(LeaseHeld, match="account_1"):
        put_away(client, store)
    clock.now += 1000.0
    state = put_away(client, store)
    assert state.archived and state.holder is None and state.epoch == 1, "I4: no epoch of its own"
    assert state.links[-1].end == "no sign of life"
    with pytest.raises(Fenced):
        client.commit(10)
    assert client.ledger.read().state.step == 5, "I5: the zombie wrote nothing"


def test_an_archived_run_takes_no_lease_and_comes_back() -> None:
    store, client = resting(Clock())
    assert put_away(client, store) == client.ledger.read().state, "archived twice is archived once"
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
        put_away(client, store)
        return real(*args)

    monkeypatch.setattr(lease, "_take", meanwhile)
    wish = lease.Wish(late.session, late.account, 180.0, 100)
    with pytest.raises(PolicyRefused, match="runs unarchive"):
        lease.acquire(late.ledger, store, late.ledger.names, late.runtime, locks, wish)


def test_deletion_waits_a_day_of_the_stores_clock_whatever_is_asked() -> None:
    clock = Clock()
    store, client = resting(clock)
    clock.now += WAIT_S - 1
    with pytest.raises(PolicyRefused, match="Nothing was deleted"):
        mark_deleted(client.ledger, store, session=id_of(9))
    clock.now += 1
    state = mark_deleted(client.ledger, store, session=id_of(9))
    assert (state.step, state.head, state.retained) == (10, None, ()), "I6: the step is not taken back"
    with pytest.raises(PolicyRefused, match="another run name"):
        put_away(client, store)
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
    with pytest.raises(NewerFormat, match="Upgrade"):
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
    state = archive(ledger, lab.shared, QuietRuntime(), NoLocks(), session=id_of(9))
    assert state.archived and state.step == kept.durable_step
    pusher = lab.session("alice", machine="a").start(push)
    lab.world.run()
    assert pusher.outcome.exit_code == Exit.POLICY and (kept.unsent / "state.json").exists()
    assert lab.state() == state, "half a run is not brought back"
    unarchive(ledger, session=id_of(9))
    again = lab.session("alice", machine="a").start(push)
    lab.world.run()
    assert again.outcome.exit_code == Exit.OK and lab.state().step > state.step


# As people type it.


@pytest.fixture
def trained(desk: Desk) -> Desk:
    desk.train(3)
    desk.train(6)
    desk.train(4, run="other")
    return desk


def files(desk: Desk, run: str = "r") -> list[Path]:
    root = next((desk.folder / "relay_store" / "checkpoints").glob("*")) / run
    return sorted(path for path in root.rglob("*") if path.is_file())


@pytest.fixture
def a_day_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores tell the machine's time here, so the day is as good as over at once."""
    monkeypatch.setattr("relay.resting.WAIT_S", 0.0)


def test_an_archived_run_trains_no_more_but_can_be_read_and_forked(trained: Desk) -> None:
    told = trained("runs", "archive", "r", "--why", "done, key=hunter2hunter2", HF_TOKEN="hunter2hunter2").out
    assert not any(b"hunter2" in path.read_bytes() for path in trained.folder.rglob("*") if path.is_file())
    assert "runs unarchive r" in told
    for words in (("run", "--run", "r", "--target-steps", "20"), ("push", "--run", "r"), ("resume", "--run", "r"),
                  ("invite", "--run", "r")):  # fmt: skip
        refused = trained(*words, code=77)
        assert "archived" in refused.err and "runs unarchive r" in refused.err
    assert trained.status()["state"] == "archived"
    assert "ARCHIVED" in trained("report", "--run", "r").out
    assert "ARCHIVED" in trained("next", "--run", "r").out and "ARCHIVED" in trained("plan", "--run", "r").out
    trained("evaluate", "--run", "r")
    trained("fork", "--run", "r", "--to", "branch")
    trained("runs", "unarchive", "r")
    trained.train(8)
    assert trained.status()["step"] == 8


@pytest.mark.usefixtures("a_day_later")
def test_only_the_run_that_was_typed_is_meant_whatever_the_surroundings_name(trained: Desk) -> None:
    """A person's shell and config name the run they train; a command that deletes must not listen to them."""
    mine, other = files(trained), files(trained, "other")
    around = {"RUN_NAME": "other"}
    for wrong in ("", "R", "r ", "other", "r,other", "r/"):
        trained("runs", "delete", "r", "--yes-delete", wrong, code=2, **around)
    for wrong in ("R", "r/", "../r", "*", ""):
        assert trained("runs", "delete", wrong, "--yes-delete", wrong, code=78, **around).err
    assert "one character" in trained("run", "--run", "rr", "--target-steps", "3", code=78).err
    trained("runs", "archive", "r", **around)
    trained("runs", "delete", "r", "--yes-delete", "r", **around)
    assert mine and not files(trained) and files(trained, "other") == other
    assert trained.status("other")["state"] != "archived"


def test_delete_first_shows_and_writes_nothing_and_wants_the_name_twice(trained: Desk) -> None:
    before = files(trained)
    shown = trained("runs", "delete", "r", "--json").json
    assert shown["schema"] == "relay.delete/1" and not shown["deleted"]
    assert shown["bytes"] == sum(path.stat().st_size for path in before)
    told = trained("runs", "delete", "r").out
    assert "runs archive r" in told and "would be deleted" in told
    assert "not archived" in trained("runs", "delete", "r", "--yes-delete", "r", code=77).err
    assert trained("runs", "delete", "r", "--yes-delete", "other", code=2).err
    trained("runs", "delete", code=2)
    trained("runs", "archive", "r")
    assert "may be deleted from" in trained("runs", "delete", "r", "--yes-delete", "r", code=77).err
    assert files(trained) == before


@pytest.mark.usefixtures("a_day_later")
def test_a_deleted_run_leaves_its_ledger_and_its_name_never_begins_again(trained: Desk) -> None:
    other = files(trained, "other")
    trained("runs", "archive", "r")
    done = trained("runs", "delete", "r", "--yes-delete", "r", "--json").json
    assert done["deleted"] and not files(trained) and files(trained, "other") == other
    for words in (
        ("run", "--run", "r", "--new"),
        ("push", "--run", "r"),
        ("fork", "--run", "r", "--to", "branch"),
        ("evaluate", "--run", "r"),
        ("export", "--run", "r"),
        ("runs", "archive", "r"),
        ("runs", "unarchive", "r"),
        ("invite", "--run", "r"),
        ("resume", "--run", "r", "--anyway"),
    ):
        refused = trained(*words, code=77)
        assert "was deleted" in refused.err and "step 6" in refused.err, words
    assert "already" in trained("fork", "--run", "other", "--to", "r", code=78).err
    assert trained.status()["state"] == "deleted" and trained.status()["step"] == 6
    assert trained("verify", "--run", "r", "--json").json["ok"]
    trained("doctor", "--run", "r")
    assert trained("runs", "list", "--json").json["runs"][0]["checkpoint_bytes"] == 0
    trained.train(6, run="other")


@pytest.mark.usefixtures("a_day_later")
def test_i8_a_deletion_that_was_killed_goes_on_and_so_does_gc(trained: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    trained("runs", "archive", "r")

    class Stubborn(Wrapper):
        """Lets two files go, then none."""

        left = 2

        def delete(self, ref: Ref) -> None:
            if Stubborn.left == 0:
                raise Denied("no")
            Stubborn.left -= 1
            super().delete(ref)

    wrap_stores(monkeypatch, Stubborn)
    half = trained("runs", "delete", "r", "--yes-delete", "r")
    assert "Run it again" in half.out and files(trained)
    manifests = {path.parent for path in files(trained) if path.name == "manifest.json"}
    assert {path.parent for path in files(trained)} == manifests, "a folder keeps its manifest to the last"
    late = files(trained)[0].parent.parent / "step_9.e2"
    late.mkdir()
    (late / "state.json").write_text("what a session uploads that does not know yet")
    Stubborn.left = 3
    trained("gc", "--run", "r")
    Stubborn.left = 1000
    assert "Run it again" not in trained("runs", "delete", "r", "--yes-delete", "r").out
    assert not files(trained)
