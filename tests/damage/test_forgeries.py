"""Well-sealed entries by a stranger who can write to the store: no impossible state is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relay.core.errors import BadData, Fenced
from relay.core.ledger import chain
from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import By, Rewind
from relay.core.ledger.histories import walk
from relay.core.ledger.rules import apply
from relay.core.ledger.state import RunState, Usage
from relay.core.ledger.verified import FileMark, RolledBack
from storage.memory import MemoryStore
from tests.core.making import Client, follower, forged, genesis, id_of, overwrite, raw
from tests.damage.ledgers import entry, passing, reader, worked
from tests.storage.counting import CountingStore

EMPTIED = {"step": 0, "head": None, "retained": (), "holder": None, "best": None, "epoch": 0}
IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "begins again": EMPTIED,
    "the step falls": {"step": 10},
    "the epoch falls": {"epoch": 0, "holder": None},
    "another run": {"run_id": "f" * 32},
    "another config": {"config_hash": "f" * 64},
}


@pytest.mark.parametrize("base", [3, 4])
@pytest.mark.parametrize("how", IMPOSSIBLE)
def test_i2_an_entry_that_blames_a_damaged_slot_is_not_believed_blindly(how: str, base: int) -> None:
    """Slot 4 is garbage; slot 5 claims that other bytes were there, and that it builds on them, or on slot 3."""
    store, client = worked()
    good = client.ledger.read().state
    overwrite(store, 4, b"garbage")
    state = good.model_copy(update=IMPOSSIBLE[how]).model_dump(mode="json")
    overwrite(store, 5, forged(raw(store, 3), entry(store, 3), seq=5, base=base, parent="f" * 64, state=state))
    walked = list(reader(store).walk(5))[-1].state
    assert reader(store).read().state == client.ledger.read().state == walked == good


def test_a_rotted_rewind_under_an_intact_commit_costs_nothing() -> None:
    store, client = worked()
    client.release()
    other = Client(store, 2)
    other.lease()
    other.append("rewind", lambda state: Rewind(damaged=((20, 1),), to=(10, 1), evidence="two bad reads"))
    good = other.commit(15).state
    overwrite(store, 6, b"rot")
    assert reader(store).read().state == list(reader(store).walk(7))[-1].state == good


def test_an_entry_on_a_damaged_genesis_is_all_that_is_known() -> None:
    store, client = worked()
    overwrite(store, 0, b"rot")
    walked = list(reader(store).walk(3))[-1].state
    assert walked == client.ledger.read().state == RunState.model_validate_json(dumps(entry(store, 3).state))


@pytest.mark.parametrize("spread", [False, True])
def test_many_void_entries_cost_a_reading_of_each_not_of_each_other(spread: bool) -> None:
    """All on one true base, or each on a base of its own choice."""
    store, client = worked()
    good = client.ledger.read().state
    many = 60
    for seq in range(4, 4 + many):
        last, base = raw(store, seq - 1), 3 if not spread else seq // 2
        overwrite(store, seq, forged(last, entry(store, 3), seq=seq, base=base, nonce=f"{seq:032x}"))
    counting = CountingStore(store)
    view = reader(counting).read()
    assert (view.entry.seq, view.state) == (3, good)
    assert counting.reads < 5 * many


def pair_of_forgeries(store: MemoryStore) -> None:
    """Slot 4 claims a state that does not follow; slot 5 follows properly from slot 4."""
    evil = RunState.model_validate_json(dumps(entry(store, 3).state)).model_copy(update={"holder": None, "step": 5})
    overwrite(store, 4, forged(raw(store, 3), entry(store, 3), state=evil.model_dump(mode="json")))
    overwrite(store, 5, follower(raw(store, 4), entry(store, 4), evil))


def test_i5_whoever_writes_and_whoever_read_along_judge_each_slot_alike() -> None:
    store, client = worked()
    pair_of_forgeries(store)
    assert reader(store).read().state.step == 5, "a cheap reading cannot know"
    newcomer = Client(store, 2, "mallory")
    newcomer.ledger.read()
    taken = newcomer.lease()
    assert (taken.state.step, taken.entry.base, taken.state.epoch) == (20, 3, 6)
    newcomer.commit(30)
    with pytest.raises(Fenced):
        client.commit(40)
    walked = list(reader(store).walk(7))[-1]
    assert walked.state == newcomer.ledger.read().state == client.ledger.read().state == reader(store).validate().state


def test_i5_what_a_cheap_reading_believed_leads_no_later_judgment_to_it() -> None:
    """Slot 4 claims a state that does not follow, and slot 6 follows properly from it, passing over slot 5."""
    store, client = worked()
    pair_of_forgeries(store)
    overwrite(store, 5, b"junk")
    passing(store, entry(store, 4), 6, epoch=6)
    ledger = reader(store)
    assert ledger.read().state.step == 5, "a cheap reading cannot know"
    assert ledger.validate().state.step == reader(store).validate().state.step == 20
    ledger = reader(store)
    ledger.read()
    assert list(ledger.walk(6))[-1].state.step == walk(ledger.chain, 6).point.state.step == 20
    assert client.ledger.read().state.step == 20


def test_many_entries_on_one_long_forgery_cost_one_reading_of_it() -> None:
    store, client = worked()
    pair_of_forgeries(store)
    for seq in range(6, 40):
        last = entry(store, seq - 1)
        overwrite(store, seq, follower(raw(store, seq - 1), last, RunState.model_validate_json(dumps(last.state))))
    overwrite(store, 40, b"junk")
    top = entry(store, 39)
    for seq in range(41, 71):
        passing(store, top, seq, epoch=seq)
    counting = CountingStore(store)
    assert list(reader(counting).walk(70))[-1].state == client.ledger.read().state
    assert counting.reads < 3 * 70


@pytest.mark.parametrize("between", [False, True])
def test_i2_a_second_genesis_is_no_base(between: bool) -> None:
    """Slot 4 begins another run; the newest slot follows properly from it."""
    store, client = worked()
    other = genesis().model_copy(update={"run_id": id_of(9)}).model_dump(mode="json")
    state = apply(None, "genesis", other, By(id_of(66), None, 0, 1.7e9), range(4))
    fields = {"base": -1, "kind": "genesis", "epoch": 0, "at": 1.7e9, "change": other}
    overwrite(store, 4, forged(raw(store, 3), entry(store, 3), **fields, state=state.model_dump(mode="json")))
    if between:
        overwrite(store, 5, b"junk")
    passing(store, entry(store, 4), 5 + between, epoch=6 if between else 1)
    good = reader(store).validate().state
    assert (good.run_id, good.step) == (id_of(1), 20)
    assert list(reader(store).walk(5 + between))[-1].state == client.ledger.read().state == good


def test_a_session_judges_only_what_no_session_on_this_machine_has_judged(tmp_path: Path) -> None:
    store, client = worked()
    for step in range(30, 400, 10):
        client.commit(step)

    def judged() -> int:
        counting = CountingStore(store)
        fresh = reader(counting)
        fresh.chain.mark = FileMark(tmp_path / "new" / "judged.json")
        fresh.validate()
        return counting.reads

    assert judged() > 40 and judged() < 15
    tail = client.ledger.read().seq
    overwrite(store, tail, follower(raw(store, tail - 1), entry(store, tail - 1), reader(store).chain.read().state))
    with pytest.raises(RolledBack) as caught:
        judged()
    assert caught.value.known is not None and (caught.value.known.seq, caught.value.step) == (40, 390)
    assert "380" in str(caught.value), "where the store ends"
    (tmp_path / "new" / "judged.json").write_text("{")
    assert judged() > 40 and judged() < 15
    (tmp_path / "new" / "judged.json").write_text(f'{{"digest":"{"a" * 64}","seq":999}}')
    assert judged() > 40, "a mark without a checksum proves nothing"


@pytest.mark.parametrize("how", [{"links": ()}, {"usage": {"account_1": Usage(intervals=((0, 0),) * 30_000)}}])
def test_i2_a_state_that_the_rules_cannot_work_on_is_void_in_every_reading(how: dict[str, Any]) -> None:
    """A forged holder without a link, or more intervals than there can be; then a release by that holder."""
    store, client = worked()
    good = client.ledger.read().state
    overwrite(
        store, 4, forged(raw(store, 3), entry(store, 3), state=good.model_copy(update=how).model_dump(mode="json"))
    )
    change = {"reason": "x", "next": None, "seconds": 1.0}
    by = {"session": client.session, "account": client.account}
    overwrite(store, 5, forged(raw(store, 4), entry(store, 4), kind="release", change=change, **by))
    assert reader(store).read().state == client.ledger.read().state == good


def test_i1_a_slot_and_a_hint_at_the_last_number_are_damage() -> None:
    store, client = worked()
    last = 2**53 - 1
    overwrite(store, last, b"x")
    client.ledger.chain.log.publish_hint(last, "0" * 64)
    with pytest.raises(BadData, match=f"{4:020d}"):
        reader(store).read()


def test_a_session_judges_a_bounded_number_of_slots_of_a_long_log(monkeypatch: pytest.MonkeyPatch) -> None:
    store, client = worked()
    for step in range(30, 400, 10):
        client.commit(step)
    reads = {}
    for most in (10, 1000):
        monkeypatch.setattr(chain, "MOST_VALIDATED", most)
        counting = CountingStore(store)
        assert reader(counting).validate().state == client.ledger.read().state
        reads[most] = counting.reads
    assert reads[10] + 20 < reads[1000]
