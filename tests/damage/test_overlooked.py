"""An entry that passes over slots which everybody can read: sessions and clean-up stop until a person decides (P4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relay.app.messages.errors import paragraph
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.changes import By, Commit, Lease, Noted, Release
from relay.core.ledger.entry import Entry, decode
from relay.core.ledger.fields import Passed
from relay.core.ledger.frozen import PASSED_OVER
from relay.core.ledger.ledger import MACHINE
from relay.core.ledger.overlooked import LOOKED_AT, Overlooked, overlooked, refuse_overlooked
from relay.core.ledger.rules import apply
from relay.core.ledger.state import RunState
from storage.base import open_store
from tests.app.cli import Desk
from tests.app.repairs import another_machine
from tests.core.making import Client, checkpoint, forged, id_of, overwrite, raw
from tests.core.toy import hash_of, state_at
from tests.damage.healed import NAMES, PLAIN
from tests.damage.healed import name as slot_name
from tests.damage.healed import raw as stored
from tests.damage.ledgers import entry, passing, reader, worked
from tests.storage.counting import CountingStore


def found(store: Any) -> Overlooked | None:
    ledger = reader(store)
    return overlooked(ledger, ledger.validate())


def state_of(one: Entry) -> RunState:
    return RunState.model_validate_json(dumps(one.state))


def test_i6_commits_that_an_entry_passes_over_though_they_can_be_read_stop_everybody() -> None:
    """A lease on the genesis: every reader is at step 0, and nothing shows that steps 10 and 20 were readable."""
    store, _ = worked()
    passing(store, entry(store, 0), 4, epoch=4)
    assert reader(store).validate().state.step == 0
    with pytest.raises(Overlooked) as refused:
        refuse_overlooked(reader(store), reader(store).validate())
    assert (refused.value.run, refused.value.slot, refused.value.step) == ("run_a", 3, 20)
    assert "repair --run run_a" in paragraph(refused.value)


def test_what_cannot_be_read_stops_nobody() -> None:
    store, _ = worked()
    overwrite(store, 2, b"rot")
    overwrite(store, 3, b"rot")
    passing(store, entry(store, 0), 4, epoch=4)
    assert not found(store)


def test_a_commit_whose_files_stay_stops_nobody() -> None:
    """Of the epoch before: its writer may have been given other bytes, and its listing may have hidden the files."""
    store, _ = worked()
    passing(store, entry(store, 2), 4, epoch=4)
    state = reader(store).validate().state
    assert state.step == 10 and state.may_have_committed(1) and not found(store)


def test_the_files_of_every_epoch_that_passed_slots_may_have_begun_stay() -> None:
    store, client = worked()
    client.release()
    later = Client(store, 2, "bob")
    later.lease()
    later.commit(30)
    passing(store, entry(store, 4), 7, epoch=7)
    state, missed = reader(store).validate().state, found(store)
    assert [epoch for epoch in range(10) if state.may_have_committed(epoch)] == [1, 2, 3, 4, 5, 6, 7]
    assert state.unread == {1, 7} and missed and missed.step == 30, "of an epoch that its writer did not name"


def test_an_entry_that_no_session_can_have_written_stops_nobody() -> None:
    """Slot 5 holds a commit on slot 3, though it names slot 4, which is valid: it never counted."""
    store, client = worked()
    client.append("incident", lambda _: Noted(cause="x", text="y", step=0))
    base = state_of(entry(store, 3))
    change = Commit(checkpoint=checkpoint(30, 1)).model_dump(mode="json")
    by = By(client.session, client.account, 1, entry(store, 3).at)
    fields = {"seq": 5, "base": 3, "kind": "commit", "session": by.session, "account": by.account, "change": change}
    after = apply(base, "commit", change, by, (4,)).model_dump(mode="json")
    overwrite(store, 5, forged(raw(store, 4), entry(store, 3), **fields, state=after))
    client.append("release", lambda _: Release(reason="budget"))
    assert entry(store, 6).base == 4 and entry(store, 6).passed is not None
    assert reader(store).validate().state.incidents[-1].cause == PASSED_OVER and not found(store)


def test_nothing_is_read_where_nothing_was_passed_over_and_little_otherwise() -> None:
    store, client = worked()
    for step in range(30, 300, 10):
        client.commit(step)

    def reads() -> int:
        counting = CountingStore(store)
        ledger = reader(counting)
        view = ledger.validate()
        before = sum(counting.counts.values())
        overlooked(ledger, view)
        return sum(counting.counts.values()) - before

    assert reads() == 0
    tail = client.ledger.read().seq
    for seq in range(tail + 1, tail + 200):
        overwrite(store, seq, b"x" * 300)
    passing(store, entry(store, tail), tail + 200, epoch=tail + 200)
    assert 0 < reads() <= 2 * LOOKED_AT + 2


def test_a_note_that_looks_like_one_of_the_rules_is_harmless() -> None:
    store, client = worked()
    for text in ("slots 0-9999999999999999, sha256 0", "slot 9999999999999999, sha256 0", "slots 9-3, sha256 0", "x"):
        client.append("incident", lambda _, text=text: Noted(cause=PASSED_OVER, text=text, step=0))
    assert not found(store)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A run of two sessions whose newest slot holds a lease on the genesis."""
    desk = Desk(tmp_path / "desk")
    for target in (20, 40):
        desk.train(target, *PLAIN)
    store = open_store((desk.folder / "relay_store").as_uri())
    tail = len(list(store.list(NAMES.ledger))) - 1
    forge_lease(store, tail + 1)
    return desk


def forge_lease(store: Any, seq: int) -> None:
    """As `passing`, on the genesis of the desk's run, and long past its latest end."""
    base = decode(stored(store, 0), MACHINE.kinds, 0)
    voids = tuple(range(1, seq))
    passed = Passed(digests=tuple(digest(stored(store, slot)) for slot in voids))
    change = Lease(target_steps=10, latest_end=base.at - 7200).model_dump(mode="json")
    by = By(id_of(66), "mallory", seq, base.at - 86_400)
    state = apply(state_of(base), "lease", change, by, voids, passed).model_dump(mode="json")
    fields: dict[str, Any] = {"format": 5, "seq": seq, "base": 0, "kind": "lease", "account": "mallory", "epoch": seq}
    fields |= {"at": by.at, "passed": passed.model_dump(mode="json"), "change": change, "state": state}
    store.put(slot_name(seq), forged(stored(store, seq - 1), base, **fields))


@pytest.mark.parametrize("words", [("run", "--target-steps", "60"), ("gc", "--full"), ("doctor",), ("verify",)])
def test_everybody_is_told_and_nothing_goes(desk: Desk, words: tuple[str, ...]) -> None:
    elsewhere = another_machine(desk)
    before = set((desk.folder / "relay_store" / "checkpoints").rglob("*"))
    refused = elsewhere(*words[:1], "--run", "r", *words[1:], code=65)
    assert "repair --run r" in " ".join((refused.out + refused.err).split())
    assert set((desk.folder / "relay_store" / "checkpoints").rglob("*")) == before


def test_after_the_choice_the_run_goes_on_from_the_commits(desk: Desk) -> None:
    elsewhere = another_machine(desk)
    found = elsewhere("repair", "--run", "r", "--json", code=65).json
    assert [one["goes_on_from"] for one in found["histories"]] == [None, 40]
    elsewhere("repair", "--run", "r", "--choose", "B")
    elsewhere.train(60, *PLAIN)
    assert elsewhere.status()["head"]["state_hash"] == hash_of(60, state_at(60))
    assert elsewhere("verify", "--run", "r", "--json").json["ok"]


def test_after_the_other_choice_the_commits_are_kept(desk: Desk) -> None:
    elsewhere = another_machine(desk)
    elsewhere("repair", "--run", "r", "--choose", "A")
    elsewhere.train(10, *PLAIN)
    elsewhere("gc", "--run", "r", "--full")
    assert elsewhere("fork", "--run", "r", "--to", "b", "--from-step", "40", "--json").json["step"] == 40
