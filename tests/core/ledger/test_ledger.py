"""The ledger on a store: races, fencing, the first entry of a run, and the views of readers (P2, P4, P5)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from unittest.mock import Mock

import pytest

from relay.app.checks.verify import verify
from relay.core.errors import BadData, Exit, Fenced
from relay.core.ledger.changes import Commit, Lease, Noted, Refused
from relay.core.ledger.frozen import MAX_LINKS
from relay.core.ledger.ledger import EntryLost, LeaseOver, LedgerOfAnotherRun, RunLedger, UnknownRun
from relay.core.ledger.state import RunState
from storage.base import Ref, Unavailable
from storage.memory import MemoryStore
from tests.core.making import NAMES, PROJECT, RUN, Client, QuietRuntime, begun, checkpoint, genesis, id_of, raw, seqs
from tests.facts import raising
from tests.storage.counting import CountingStore


def test_a_run_is_begun_once_and_its_config_is_pinned() -> None:
    store = MemoryStore()
    first, second = Client(store, 1), Client(store, 2)
    view, mine = first.ledger.begin(genesis(), session=first.session)
    again, not_mine = second.ledger.begin(genesis(config={"lr": 9}), session=second.session)
    assert (mine, not_mine, view.seq, again.seq) == (True, False, 0, 0)
    assert second.ledger.genesis().config == {"lr": 0.1}


def test_a_run_that_has_not_begun_is_78() -> None:
    ledger = RunLedger(MemoryStore(), PROJECT, RUN, QuietRuntime())
    assert ledger.peek() is None
    for act in (ledger.read, ledger.genesis, lambda: ledger.append("lease", lambda s: Lease(), session=id_of(1),
                                                                   account="a")):  # fmt: skip
        with raising(UnknownRun, RUN, PROJECT) as error:
            act()
        assert error.value.exit_code == Exit.BAD_CONFIG


def test_a_ledger_copied_under_another_name_is_refused() -> None:
    store, _ = begun()
    for seq in seqs(store):
        store.put(f"runs/proj/other/ledger/{seq:020d}.json", raw(store, seq))
    with raising(LedgerOfAnotherRun, RUN, "other"):
        RunLedger(store, PROJECT, "other", QuietRuntime()).read()


def test_every_reader_sees_what_the_writer_wrote() -> None:
    store, client = begun()
    old_reader = Client(store, 5)
    old_reader.ledger.read()
    for step in range(1, 20):
        view = client.commit(step)
    assert view == old_reader.ledger.read() == Client(store, 6).ledger.read()
    assert [point.base for point in client.ledger.walk(view.seq)] == list(range(view.seq + 1))


@pytest.mark.parametrize("seed", range(5))
def test_i4_of_sessions_racing_for_the_lease_one_wins_each_epoch(seed: int) -> None:
    store, chance = MemoryStore(), Random(seed)
    clients = [Client(store, n, f"account_{n}") for n in range(1, 5)]
    clients[0].begin()
    won: dict[int, str] = {}
    for _ in range(40):
        client = chance.choice(clients)
        try:
            match chance.choice(["lease", "commit", "release", "read"]):
                case "lease":
                    view = client.lease()
                    assert view.state.epoch not in won
                    won[view.state.epoch] = client.session
                case "commit":
                    step = client.ledger.read().state.step + 10
                    state = client.commit(step).state
                    assert won[state.epoch] == client.session and state.step == step
                case "release":
                    client.release()
                case _:
                    client.ledger.read()
        except (Fenced, Refused):
            holder = client.ledger.read().state.holder
            assert holder is None or holder.session != client.session
    assert seqs(store) == list(range(len(seqs(store))))
    assert sorted(won) == list(range(1, len(won) + 1))


def test_a_change_is_built_again_on_what_another_wrote_meanwhile() -> None:
    store, holder = begun()
    other, seen = Client(store, 2), []

    def build(state: RunState) -> Commit:
        seen.append(state.incidents_total)
        if len(seen) == 1:
            note = Noted(cause="skew", text="late", step=0)
            other.ledger.append("incident", lambda s: note, session=other.session, account=None)
        return Commit(checkpoint=checkpoint(10, 1))

    view = holder.append("commit", build)
    assert (seen, view.state.incidents_total, view.state.step) == ([0, 1], 1, 10)


def test_threads_racing_for_slots_land_every_intent_once() -> None:
    store, _ = begun()

    def write(number: int) -> None:
        client = Client(store, number)
        for text in range(15):
            note = Noted(cause="note", text=f"{number}.{text}", step=0)
            client.ledger.append("incident", lambda s, note=note: note, session=client.session, account=None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(10, 14)))
    slots = list(Client(store, 99).ledger.entries(0, len(seqs(store))))
    texts = [slot.entry.change["text"] for slot in slots[2:] if slot.entry]
    assert sorted(texts) == sorted(f"{n}.{t}" for n in range(10, 14) for t in range(15))
    assert Client(store, 98).ledger.read().state.incidents_total == 60


def test_a_session_whose_lease_was_taken_is_fenced_and_changes_nothing() -> None:
    store, old = begun()
    old.commit(10)
    new = Client(store, 2, "account_2")
    new.lease()
    before = seqs(store)
    acts: tuple[Callable[[], object], ...] = (
        lambda: old.commit(20),
        lambda: old.release(),
        lambda: old.append("incident", lambda s: Noted(cause="x", text="", step=0)),
    )
    for act in acts:
        with pytest.raises(LeaseOver) as error:
            act()
        assert error.value.exit_code == Exit.FENCED and error.value.holder == "account_2"
    assert seqs(store) == before
    new.release()
    with pytest.raises(LeaseOver) as over:
        old.commit(20)
    assert over.value.holder is None
    with pytest.raises(Fenced):
        new.commit(20)


def test_who_has_read_that_the_lease_is_lost_waits_for_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store goes silent once the other's entry is read: the end is 76, not that of an upload that did not fit."""
    store, client = begun()
    other = Client(store, 2, "account_2")
    real = store.put_if_absent

    def overtaken(name: str, data: bytes) -> Ref:
        with monkeypatch.context() as patch:
            patch.setattr(store, "put_if_absent", real)
            other.lease()
        monkeypatch.setattr(store, "now", Mock(side_effect=Unavailable("no clock")))
        return real(name, data)

    monkeypatch.setattr(store, "put_if_absent", overtaken)
    with pytest.raises(Fenced):
        client.commit(10)


def test_a_lease_taken_while_ours_was_being_appended_fences_it() -> None:
    store, old = begun()
    new = Client(store, 2)

    def build(state: RunState) -> Commit:
        new.lease()
        return Commit(checkpoint=checkpoint(10, 1))

    with pytest.raises(Fenced):
        old.append("commit", build)
    assert new.ledger.read().state.step == 0


def test_reading_writes_nothing() -> None:
    inner, _ = begun()
    store = CountingStore(inner)
    ledger = RunLedger(store, PROJECT, RUN, QuietRuntime())
    ledger.read()
    ledger.genesis()
    ledger.check_epochs(store)
    list(ledger.walk(1))
    assert not {"put", "put_if_absent", "delete", "now"} & set(store.counts)


def test_i1_a_file_of_a_later_epoch_proves_a_lost_entry() -> None:
    store, client = begun()
    store.put(NAMES.checkpoint(10, 1) + "x", b"")
    store.put(NAMES.checkpoints + "junk", b"")
    store.put(NAMES.heartbeat(1), b"")
    assert client.ledger.check_epochs(store).state.epoch == 1
    for name in (NAMES.checkpoint(10, 2) + "x", NAMES.heartbeat(2)):
        store.put(name, b"")
        with raising(EntryLost, name, "epoch 1", "epoch 2"):
            client.ledger.check_epochs(store)
        store.delete(store.ref(name))


def test_a_file_of_an_epoch_that_passed_slots_may_have_begun_proves_nothing() -> None:
    store, client = begun()
    state = client.ledger.read().state.model_copy(update={"skipped": 3})
    client.ledger.refuse_later_epoch((3, NAMES.heartbeat(3)), state, store)
    with pytest.raises(EntryLost):
        client.ledger.refuse_later_epoch((4, NAMES.heartbeat(4)), state, store)


@pytest.mark.slow
def test_links_that_leave_the_state_are_kept_in_history_objects() -> None:
    store, client = begun()
    for _ in range(2, 2 * MAX_LINKS):
        client.lease()
    reader = Client(store, 999).ledger
    state = reader.read().state
    assert MAX_LINKS // 2 <= len(state.links) <= MAX_LINKS
    every = (*reader.archived_links(state), *state.links)
    assert [link.epoch for link in every] == list(range(1, 2 * MAX_LINKS))
    assert state.links_total == len(every)
    assert state.history and verify(reader, store).ok
    store.put(state.history.ref, b"{}")
    found = verify(reader, store)
    assert [(i.cause, i.against) for i in found.incidents][-1] == ("history", True) and not found.ok
    with pytest.raises(BadData, match="history object"):
        reader.archived_links(state)
    store.delete(store.ref(state.history.ref))
    with pytest.raises(BadData, match="history object"):
        reader.archived_links(state)


@pytest.mark.slow
def test_a_history_object_whose_name_is_taken_gets_another_and_touches_nothing() -> None:
    store, client = begun()
    while client.ledger.read().state.links_total < MAX_LINKS:
        client.lease()
    name = NAMES.history(MAX_LINKS // 2)
    store.put(name, b"something else")
    client.lease()
    state = client.ledger.read().state
    assert state.history and state.history.ref.startswith(name.removesuffix("json")) and state.history.ref != name
    assert store.get(store.ref(name)) == b"something else"
    assert [link.epoch for link in client.ledger.archived_links(state)] == list(range(1, MAX_LINKS // 2 + 1))
