"""Which lines of entries count as histories: all that a session can have written, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relay.core.errors import BadConfig
from relay.core.ledger import entry as entries
from relay.core.ledger.canonical import digest
from relay.core.ledger.changes import By, Choose, Noted, Other, Refused
from relay.core.ledger.entry import PASSING, Entry, decode
from relay.core.ledger.fields import Kept, Passed
from relay.core.ledger.frozen import MAX_KEPT, NOT_KEPT, not_kept
from relay.core.ledger.histories import Walked, walk
from relay.core.ledger.ledger import MACHINE, RunLedger
from relay.core.ledger.reader import Point
from relay.core.ledger.rules import apply
from relay.core.ledger.state import RunState
from tests.core.making import (
    NAMES,
    PROJECT,
    RUN,
    Client,
    QuietRuntime,
    begun,
    follower,
    forged,
    id_of,
    overwrite,
    raw,
    seqs,
)
from tests.facts import raising

GARBAGE = b"garbage"


def walked(store: Any) -> Walked[RunState]:
    ledger = RunLedger(store, PROJECT, RUN, QuietRuntime())
    return walk(ledger.chain, max(seqs(store)))


def entry(store: Any, seq: int) -> Entry:
    return decode(raw(store, seq), MACHINE.kinds, seq)


def worked() -> tuple[Any, Client]:
    """Slots: 0 genesis, 1 lease, 2 commit 10, 3 commit 20."""
    store, client = begun()
    client.commit(10)
    client.commit(20)
    return store, client


def hidden(store: Any, seq: int, act: Callable[[], object]) -> None:
    """Do something while a slot is unreadable."""
    whole = raw(store, seq)
    overwrite(store, seq, whole[:300])
    act()
    overwrite(store, seq, whole)


def test_a_log_without_a_bad_read_has_one_history() -> None:
    store, client = worked()
    client.release()
    found = walked(store)
    assert not found.others and not found.own and found.point.base == 4
    assert found.digests == tuple(digest(raw(store, seq)) for seq in range(5))


def test_an_entry_that_was_passed_over_and_healed_is_a_history_of_its_own() -> None:
    store, _ = worked()
    second = Client(store, 2)
    hidden(store, 3, second.lease)
    second.commit(30)
    found = walked(store)
    (other,) = found.others
    assert (other.after, other.seqs, other.state.step) == (2, (3,), 20)
    assert [slot.seq for slot in found.own] == [4, 5] and found.point.state is not None
    assert found.point.state.step == 30 and other.before is not None and other.before.step == 10


def test_two_that_were_passed_over_one_after_another_are_two_histories() -> None:
    store, _ = worked()
    second, third = Client(store, 2), Client(store, 3)
    hidden(store, 3, second.lease)
    second.commit(30)
    hidden(store, 5, third.lease)
    found = walked(store)
    assert [other.seqs for other in found.others] == [(3,), (5,)]
    assert [slot.seq for slot in found.own] == [4, 6]


@pytest.mark.parametrize("base", [1, 2])
def test_what_no_session_can_have_written_is_no_history(base: int) -> None:
    """An entry that follows from an older base, and names the intact bytes of the slot before it all the same."""
    store, client = worked()
    state = MACHINE.parse(entry(store, base).state)
    overwrite(store, 4, follower(raw(store, 3), entry(store, base), state, seq=4, base=base))
    assert walked(store).point.base == 3
    assert [other.seqs for other in walked(store).others] == ([] if base == 2 else [(4,)])
    client.commit(30)
    assert walked(store).point.state == client.ledger.read().state


@pytest.mark.parametrize("fields", [{"parent": "f" * 64}, {"state": None}, {"parent": "f" * 64, "base": 2}])
def test_forged_entries_are_no_history(fields: dict[str, Any]) -> None:
    store, _ = worked()
    state = MACHINE.parse(entry(store, 3).state)
    if "state" in fields:
        fields = {"state": state.model_copy(update={"step": 99}).model_dump(mode="json")}
        overwrite(store, 4, forged(raw(store, 3), entry(store, 3), **fields))
    else:
        overwrite(store, 4, follower(raw(store, 3), entry(store, 3), state, **fields))
    assert not walked(store).others


def test_an_entry_whose_base_rotted_belongs_to_the_history_before_it() -> None:
    store, client = worked()
    client.commit(30)
    overwrite(store, 3, GARBAGE)
    found = walked(store)
    assert not found.others and found.point.state is not None and found.point.state.step == 30


def chosen(store: Any, end: Entry, kept: tuple[Kept, ...] = (), epoch: int = 9, **more: Any) -> RunState:
    """The state after a choice of the history that ends in `end`, where the log ends."""
    state = MACHINE.parse(end.state)
    change = Choose(epoch=epoch, kept=kept, why="because", **more).model_dump(mode="json")
    tail = max(seqs(store))
    passed = Passed(digests=(digest(raw(store, tail)),)) if tail > end.seq else None
    return apply(
        state, "choose", change, By(id_of(5), None, epoch, end.at), tuple(range(end.seq + 1, tail + 1)), passed
    )


def kept(step: int = 20, epoch: int = 1, **more: Any) -> Kept:
    manifest = NAMES.manifest(step, epoch)
    plain: dict[str, Any] = {"slot": 3, "manifest": manifest, "ref": manifest, "sha256": "a" * 64}
    return Kept(step=step, epoch=epoch, **plain | more)


def released() -> Any:
    store, client = worked()
    client.release()
    return store


def test_a_choice_keeps_checkpoints_and_raises_the_epoch() -> None:
    store = released()
    state = chosen(store, entry(store, 4), (kept(50, 7),), epoch=9)
    assert (state.epoch, state.next_epoch, state.step, state.holder) == (9, 10, 20, None)
    assert [k.key for k in state.kept] == [(50, 7)]
    assert (state.incidents[-1].cause, state.incidents[-1].text) == ("repaired", "because")


def test_a_choice_that_the_rules_refuse() -> None:
    store = released()
    end = entry(store, 4)
    with raising(Refused, "epoch 0", "epoch 1"):
        chosen(store, end, epoch=0)
    with raising(Refused, NAMES.manifest(40, 7), "step 50"):
        chosen(store, end, (kept(50, 7, manifest=NAMES.manifest(40, 7)),))
    with raising(Refused, "step 50", "epoch 10"):
        chosen(store, end, (kept(50, 10),), epoch=9)
    with raising(Refused, "choose"):
        chosen(store, entry(store, 3))
    with raising(Refused, 2**32, "epoch 1"):
        chosen(store, end, epoch=2**32 + 2)
    assert chosen(store, end, epoch=2**32 + 1).next_epoch == 2**32 + 2, "after the highest there still is a lease"


def test_what_a_choice_keeps_no_longer_is_told() -> None:
    store = released()
    end = entry(store, 4)
    many = tuple(kept(step, 7) for step in range(30, 30 + MAX_KEPT))
    state = chosen(store, end, many)
    assert len(state.kept) == MAX_KEPT and state.incidents[-1].cause == "repaired"
    state = chosen(store, end, many, unkept=3)
    assert (state.incidents[-1].cause, state.incidents[-1].text) == (NOT_KEPT, not_kept(3))


def test_a_choice_lets_every_reader_go_on_from_the_same_entry() -> None:
    """The chosen entry is followed by a void one, or is the newest; read quickly, judged, or by who has read along."""
    for tail in (4, 5):
        store, _ = worked()
        along = RunLedger(store, PROJECT, RUN, QuietRuntime())
        overwrite(store, 4, GARBAGE)
        if tail == 5:
            noted = Noted(cause="x", text="y", step=0)
            Client(store, 2).ledger.append("incident", lambda state, n=noted: n, session=id_of(6), account=None)
        along.read()
        end = entry(store, 3 if tail == 4 else 5)
        ledger = RunLedger(store, PROJECT, RUN, QuietRuntime(7))
        other = Other(seq=tail, digest=digest(raw(store, tail)), step=1, epoch=1)
        view = MACHINE.parse(end.state)
        point = Point(max(seqs(store)), digest(raw(store, max(seqs(store)))), view, end)
        gone = {"epoch": 1, "reason": "no sign of life", "seconds": 1.0}
        change = Choose.model_validate({"epoch": 4, "others": (other,), "took_over": gone})
        passed = Passed(digests=(digest(raw(store, 4)),)) if end.seq < max(seqs(store)) else None
        landed = ledger.chain.append_at(point, "choose", change, By(id_of(5), None, 4, end.at), passed)
        assert landed.entry.format == PASSING
        fresh = RunLedger(store, PROJECT, RUN, QuietRuntime())
        assert fresh.read().state == fresh.validate().state == along.validate().state == landed.state
        with raising(Refused, f"slot {landed.seq}"):
            ledger.chain.append_at(point, "choose", change, By(id_of(5), None, 4, end.at), passed)


def test_an_older_version_stops_at_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    store = released()
    end = entry(store, 4)
    ledger = RunLedger(store, PROJECT, RUN, QuietRuntime())
    point = Point(4, digest(raw(store, 4)), MACHINE.parse(end.state), end)
    ledger.chain.append_at(point, "choose", Choose(epoch=1), By(id_of(5), None, 1, end.at), None)
    monkeypatch.setattr(entries, "FORMAT", 4)
    with pytest.raises(BadConfig, match="Slot 5"):
        RunLedger(store, PROJECT, RUN, QuietRuntime()).read()
