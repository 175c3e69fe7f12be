"""Void, rotted and forged entries: all readers agree and believe nothing that does not follow (I1, I2)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from relay.core.errors import BadData, Exit, StorageUnreachable
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.changes import Commit, Noted
from relay.core.ledger.entry import FORMAT, NewerFormat, encode
from relay.core.ledger.ledger import EntryLost, RunLedger, View
from relay.core.ledger.passing import SlotUnreadable
from relay.core.ledger.reader import NoValidEntry
from relay.core.ledger.state import RunState
from storage.base import Ref
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.core.making import NAMES, Client, checkpoint, follower, forged, id_of, overwrite, raw
from tests.damage.ledgers import entry, reader, worked
from tests.facts import raising


def everybody(store: MemoryStore, *others: RunLedger) -> View:
    """The view of a fresh reader, which readers that know older entries and a walk through all must share."""
    view = reader(store).read()
    for other in others:
        seen = other.read()
        assert (seen.seq, seen.digest, seen.state) == (view.seq, view.digest, view.state)
    walked = list(reader(store).walk(view.seq))
    assert (walked[-1].seq, walked[-1].digest, walked[-1].state) == (view.seq, view.digest, view.state)
    return view


def wrong(store: MemoryStore, **fields: Any) -> bytes:
    """A well-sealed entry for slot 4 that is wrong in some fields."""
    return forged(raw(store, 3), entry(store, 3), **fields)


def stolen_commit(store: MemoryStore) -> bytes:
    """A client without the lease claims a checkpoint, with the state that would follow."""
    head = checkpoint(999, 1).model_dump(mode="json")
    state = entry(store, 3).state | {"step": 999, "head": head}
    change = Commit(checkpoint=checkpoint(999, 1)).model_dump(mode="json")
    return wrong(store, kind="commit", change=change, state=state)


def with_state(**changed: Any) -> Callable[[MemoryStore], bytes]:
    return lambda store: wrong(store, state=entry(store, 3).state | changed)


VOID: dict[str, Callable[[MemoryStore], bytes]] = {
    "garbage": lambda store: b"\x00garbage",
    "empty": lambda store: b"",
    "too long": lambda store: b"x" * 300_000,
    "torn": lambda store: raw(store, 3)[:-40],
    "replayed": lambda store: raw(store, 3),
    "deep": lambda store: b"[" * 100_000,
    "another parent": lambda store: follower(raw(store, 3), entry(store, 3), state_of(store), parent="9" * 64),
    "passing over a valid entry": lambda store: follower(
        raw(store, 3), entry(store, 3), state_of(store, 2), seq=4, base=2, parent=digest(raw(store, 3))
    ),
    "calling a valid entry void": lambda store: follower(
        raw(store, 3), entry(store, 3), state_of(store), seq=4, base=2, parent=digest(raw(store, 3))
    ),
    "from nothing": lambda store: follower(
        raw(store, 3), entry(store, 3), state_of(store), base=-1, parent=digest(raw(store, 3))
    ),
    "a second genesis": lambda store: wrong(store, kind="genesis", change=entry(store, 0).change),
    "stolen": stolen_commit,
    "a state that does not follow": with_state(step=5),
    "a state that is none": with_state(step="x"),
    "a halt from nowhere": with_state(halted="send money"),
    "a change that is none": lambda store: wrong(store, change={"x": 1}),
    "an old epoch": lambda store: wrong(store, epoch=0),
}


def state_of(store: MemoryStore, seq: int = 3) -> RunState:
    return RunState.model_validate_json(dumps(entry(store, seq).state))


def test_the_forger_of_these_tests_can_write_a_proper_entry() -> None:
    store, client = worked()
    overwrite(store, 4, follower(raw(store, 3), entry(store, 3), state_of(store)))
    view = everybody(store, client.ledger)
    assert (view.entry.seq, view.state.incidents[-1].text, view.damage) == (4, "hello", ())


@pytest.mark.parametrize("name", VOID)
def test_i2_a_void_entry_keeps_its_slot_and_changes_nothing(name: str) -> None:
    store, client = worked()
    behind, good = reader(store), client.ledger.read()
    behind.read()
    overwrite(store, 4, VOID[name](store))
    view = everybody(store, client.ledger, behind)
    assert (view.seq, view.entry, view.state) == (4, good.entry, good.state)
    assert [damage.slot for damage in view.damage] == [4]
    after = client.commit_past(30)
    assert entry(store, 5).base == 3 and after.state.step == 30
    assert after.state.incidents[-1].cause == "passed-over" and "slot 4" in after.state.incidents[-1].text
    client.commit(40)
    view = everybody(store, behind)
    assert (view.state.step, view.state.incidents_total) == (40, 1)


def test_several_void_entries_in_a_row_are_one_incident() -> None:
    store, client = worked()
    behind = reader(store)
    behind.read()
    for seq, name in enumerate(("garbage", "replayed", "torn", "empty"), start=4):
        overwrite(store, seq, VOID[name](store))
    after = everybody(store, behind)
    assert (after.seq, after.entry.seq, len(after.damage)) == (7, 3, 4)
    with raising(SlotUnreadable, f"{NAMES.ledger}{4:020d}.json"):
        client.commit(30)
    assert reader(store).read().seq == 7, "a session under its lease writes nothing after a slot it cannot read"
    view = client.commit_past(30)
    assert (view.seq, view.state.incidents_total) == (9, 1)
    assert "slots 4-7" in view.state.incidents[-1].text
    overwrite(store, 10, b"again")
    assert everybody(store, behind).state.step == 30


@pytest.mark.parametrize("how", [b"", b"rot", None])
def test_an_entry_that_rots_under_an_intact_one_costs_nothing(how: bytes | None) -> None:
    store, client = worked()
    behind = reader(store)
    behind.read()
    client.commit(30)
    client.commit(40)
    good = client.ledger.read().state
    broken = how if how is not None else raw(store, 4)[:200] + b"#" + raw(store, 4)[201:]
    overwrite(store, 4, broken)
    view = everybody(store, behind)
    assert (view.seq, view.state) == (5, good)
    assert view.damage and view.damage[-1].slot == 4
    assert client.commit(50).state.incidents_total == 0
    assert everybody(store, behind).state.step == 50


def test_a_forged_entry_on_garbage_is_not_believed() -> None:
    """It names the garbage as its parent, so nothing rotted: the garbage was there first."""
    store, _ = worked()
    overwrite(store, 4, b"garbage")
    claim = entry(store, 3).model_copy(
        update={"seq": 5, "base": 4, "parent": digest(b"garbage"), "nonce": id_of(9), "session": id_of(8)}
    )
    overwrite(store, 5, encode(claim))
    assert everybody(store).entry.seq == 3


def test_a_base_that_rots_under_void_entries_costs_nothing() -> None:
    store, client = worked()
    overwrite(store, 4, b"void")
    client.commit_past(30)
    overwrite(store, 3, b"rot")
    view = reader(store).read()
    assert (view.seq, view.state.step) == (6, 30)
    assert everybody(store, reader(store)).state.step == 30
    assert 3 in {damage.slot for point in reader(store).walk(6) for damage in point.damage}


def test_a_rotted_tail_is_void_and_a_rotted_lease_shows_by_its_epoch() -> None:
    store, client = worked()
    other = Client(store, 2, "account_2")
    other.lease()
    store.put(NAMES.heartbeat(2), b"alive")
    overwrite(store, 4, b"rot")
    assert reader(store).read().state.epoch == 1
    with raising(EntryLost) as error:
        reader(store).check_epochs(store)
    assert (error.value.file, error.value.epoch, error.value.newest) == (NAMES.heartbeat(2), 2, 1)
    assert error.value.exit_code == Exit.BAD_DATA
    with pytest.raises(StorageUnreachable):
        client.commit(30)  # the old holder cannot pass over a slot that may hold another session's lease
    with raising(EntryLost):
        client.lease()


def test_a_bad_read_is_read_again() -> None:
    store, _ = worked()

    class Flaky(Wrapper):
        bad = 2

        def read_range(self, ref: Ref, start: int, length: int) -> bytes:
            data = super().read_range(ref, start, length)
            self.bad -= 1
            return data if self.bad % 2 == 0 else data[:-9]

    view = reader(Flaky(store)).read()
    assert (view.state.step, view.damage) == (20, ())


def test_a_log_without_a_valid_entry_is_65() -> None:
    store = MemoryStore()
    for seq in range(3):
        overwrite(store, seq, b"nothing")
    with raising(NoValidEntry, 3):
        reader(store).peek()


def test_a_genesis_after_garbage_begins_the_run() -> None:
    store = MemoryStore()
    with pytest.raises(BadData):
        overwrite(store, 0, b"garbage")
        reader(store).peek()


@pytest.mark.parametrize("fields", [{"kind": "merge"}, {"format": FORMAT + 1}])
def test_a_newer_entry_stops_older_clients_with_78(fields: dict[str, Any]) -> None:
    store, client = worked()
    body = entry(store, 3).model_dump(mode="json") | {"seq": 4, "base": 3, "parent": digest(raw(store, 3))} | fields
    overwrite(store, 4, dumps({"body": body, "sha256": digest(dumps(body))}))
    for act in (client.ledger.read, reader(store).read, lambda: client.commit(30)):
        with pytest.raises(NewerFormat) as error:
            act()
        assert error.value.exit_code == Exit.BAD_CONFIG
    assert len(list(store.list(NAMES.ledger))) == 5


@pytest.mark.parametrize("seed", range(3))
def test_whatever_an_outsider_appends_all_readers_agree_and_training_goes_on(seed: int) -> None:
    store, client = worked()
    chance, readers = Random(seed), [reader(store) for _ in range(3)]
    step = 20
    for _ in range(16):
        if chance.random() < 0.5:
            tail = reader(store).read()
            junk = chance.choice(
                [
                    chance.randbytes(chance.randrange(400)),
                    raw(store, chance.randrange(tail.seq + 1)),
                    forged(raw(store, tail.seq), tail.entry, seq=tail.seq + 1, state=tail.entry.state | {"step": 7}),
                    forged(raw(store, tail.seq), tail.entry, seq=tail.seq + 1, base=chance.randrange(tail.seq + 1)),
                ]
            )
            overwrite(store, tail.seq + 1, junk)
        else:
            step += 10
            assert client.commit_past(step).state.step == step
            if step % 100 == 0:
                client.append("incident", lambda state: Noted(cause="note", text="t", step=1))
        some = chance.sample(readers, 2)
        assert everybody(store, *some).state.step == step
