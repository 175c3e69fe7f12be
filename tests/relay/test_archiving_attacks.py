"""What would delete too much, too early or too little: late and forged entries, races, neighbours, zombies
(docs/decisions/0013, P8)."""

from __future__ import annotations

from typing import Any

import pytest

from relay.archiving import mark_deleted, refuse_unseen, unarchive
from relay.canonical import digest
from relay.changes import Archive, By, Delete, Unarchive
from relay.errors import PolicyRefused
from relay.resting import WAIT_S
from relay.rules import apply
from storage.base import Ref, Store
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.relay.runs import Client, Clock, begun, forged, id_of, raw
from tests.relay.test_archiving import put_away, resting

DELETER = id_of(9)


def forge(store: Store, client: Client, kind: str, change: Any, at: float) -> None:
    """An entry that follows the rules, of somebody who lies about the time."""
    view = client.ledger.read()
    before = raw(store, view.seq)
    by = By(id_of(66), None, view.state.epoch, at)
    plain = change.model_dump(mode="json")
    state = apply(view.state, kind, plain, by).model_dump(mode="json")
    fields = {"kind": kind, "change": plain, "state": state, "at": at, "parent": digest(before)}
    data = forged(before, view.entry, **fields)
    store.put_if_absent(f"{client.ledger.names.ledger}{view.seq + 1:020d}.json", data)


def test_an_archive_that_landed_a_day_after_it_was_written_gives_the_others_their_day() -> None:
    """A laptop is closed between asking for the time and sending the entry."""
    clock = Clock()

    class Sleeps(Wrapper):
        """Falls asleep once, right before an entry is sent."""

        tired = False

        def put_if_absent(self, name: str, data: bytes) -> Ref:
            if self.tired:
                self.tired = False
                clock.now += 3 * WAIT_S
            return super().put_if_absent(name, data)

    inner = MemoryStore(clock=clock)
    store = Sleeps(inner)
    _, client = begun(store)
    client.commit(5)
    client.release()
    store.tired = True
    state = put_away(client, store)
    assert state.archived is not None and clock.now - state.archived >= 3 * WAIT_S
    with pytest.raises(PolicyRefused, match="may be deleted from"):
        mark_deleted(client.ledger, store, session=DELETER)
    clock.now += WAIT_S
    assert mark_deleted(client.ledger, store, session=DELETER).deleted


def test_entries_that_lie_about_the_time_free_no_file_before_the_day_is_over() -> None:
    clock = Clock()
    store, client = begun(MemoryStore(clock=clock))
    client.commit(5)
    client.release()
    forge(store, client, "archive", Archive(), clock.now - 2 * WAIT_S)
    with pytest.raises(PolicyRefused, match="may be deleted from"):
        mark_deleted(client.ledger, store, session=DELETER)
    forge(store, client, "delete", Delete(), clock.now)
    view = client.ledger.read()
    assert view.state.deleted is not None
    with pytest.raises(PolicyRefused):
        refuse_unseen(client.ledger, view)
    with pytest.raises(PolicyRefused):
        mark_deleted(client.ledger, store, session=DELETER)
    clock.now += WAIT_S
    refuse_unseen(client.ledger, view)


def test_who_brings_back_what_another_just_brought_back_or_deleted_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for first in ("unarchive", "delete"):
        clock = Clock()
        store, client = resting(clock)
        clock.now += WAIT_S
        other = Client(store, 2)
        real = other.ledger.append

        def meanwhile(*args: Any, first: str = first, client: Client = client, real: Any = real, **more: Any) -> Any:
            change = {"unarchive": Unarchive(), "delete": Delete()}[first]
            client.ledger.append(first, lambda _: change, session=id_of(8), account=None)
            return real(*args, **more)

        monkeypatch.setattr(other.ledger, "append", meanwhile)
        if first == "unarchive":
            assert unarchive(other.ledger, session=DELETER).archived is None
        else:
            with pytest.raises(PolicyRefused, match="was deleted"):
                unarchive(other.ledger, session=DELETER)


def test_a_run_brought_back_while_somebody_deletes_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    store, client = resting(clock)
    clock.now += WAIT_S
    other = Client(store, 2)
    real = other.ledger.check_epochs

    def meanwhile(checkpoints: Store) -> Any:
        seen = real(checkpoints)
        unarchive(client.ledger, session=id_of(8))
        return seen

    monkeypatch.setattr(other.ledger, "check_epochs", meanwhile)
    with pytest.raises(PolicyRefused, match="brought back meanwhile"):
        mark_deleted(other.ledger, store, session=DELETER)
    state = client.ledger.read().state
    assert state.archived is None and state.deleted is None and state.retained
    assert Client(store, 3).lease().state.step == 10
