"""Appends whose reply is lost, and stores that refuse: an intent lands once, and silence is no empty run (P2, P4)."""

from __future__ import annotations

from random import Random

import pytest

from relay.core.errors import Exit, Fenced, StorageUnreachable
from relay.core.ledger.chain import Intent, Unsettled
from relay.core.ledger.changes import Noted
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from storage.base import Denied, Unavailable
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.core.making import PROJECT, RUN, Client, QuietRuntime, begun, nonces, seqs
from tests.storage.faulty import FaultyStore


@pytest.mark.parametrize("fault", ["after", "late"])
def test_a_lost_reply_is_settled_by_reading_the_slot(fault: str) -> None:
    store, client = begun(FaultyStore(MemoryStore()))
    assert isinstance(store, FaultyStore)
    store.script("put_if_absent", fault)  # type: ignore[arg-type]
    view = client.commit(10)
    store.land()
    assert (view.state.step, seqs(store)) == (10, [0, 1, 2])
    assert client.commit(20).state.links[-1].commits == 2


def test_an_unknown_outcome_is_said_and_the_same_intent_lands_once() -> None:
    store, client = begun(FaultyStore(MemoryStore()))
    assert isinstance(store, FaultyStore)
    store.script("put_if_absent", "late", *["before"] * 20)
    with pytest.raises(Unsettled) as error:
        client.commit(10)
    assert error.value.exit_code == Exit.UPLOAD_FAILED
    assert client.ledger.read().state.step == 0
    store.land()
    store._scripts.clear()
    note = Noted(cause="skew", text="", step=0)
    other = Client(store.inner, 2)
    other.ledger.append("incident", lambda s: note, session=other.session, account=None)
    view = client.commit(10, intent=error.value.intent)
    assert (view.state.step, view.state.links[-1].commits, view.seq) == (10, 1, 3)
    assert len(set(nonces(store.inner))) == 4


def test_an_intent_that_did_not_land_is_sent_again_under_its_nonce() -> None:
    store, client = begun(FaultyStore(MemoryStore()))
    assert isinstance(store, FaultyStore)
    store.script("put_if_absent", *["before"] * 20)
    intent: Intent[RunState] = client.ledger.intent()
    with pytest.raises(Unsettled):
        client.commit(10, intent=intent)
    store._scripts.clear()
    assert client.commit(10, intent=intent).seq == 2
    assert nonces(store.inner)[2] == intent.nonce


def test_an_own_entry_that_lands_late_is_folded_in() -> None:
    store, client = begun(FaultyStore(MemoryStore()))
    assert isinstance(store, FaultyStore)
    store.script("put_if_absent", "late", *["before"] * 20)
    with pytest.raises(Unsettled):
        client.commit(10)
    store.land()
    store._scripts.clear()
    view = client.commit(20)
    assert (view.state.step, [c.key for c in view.state.retained]) == (20, [(10, 1), (20, 1)])


@pytest.mark.parametrize("seed", range(6))
def test_under_chance_faults_every_intent_lands_once_and_no_slot_is_skipped(seed: int) -> None:
    inner = MemoryStore()
    chance = Random(seed)
    begun(inner)[1].release()
    clients = [Client(FaultyStore(inner, Random(seed + n), before=0.04, after=0.04, throttled=0.02), n) for n in (2, 3)]
    done = 0
    for _ in range(60):
        client = chance.choice(clients)
        try:
            if chance.random() < 0.2 or not client.epoch:
                client.lease()
            else:
                client.commit(Client(inner, 9).ledger.read().state.step + 5)
                done += 1
        except (Fenced, Unsettled, StorageUnreachable):
            continue
    assert done >= 5
    assert seqs(inner) == list(range(len(seqs(inner))))
    assert len(set(nonces(inner))) == len(seqs(inner))
    assert all(not point.damage for point in Client(inner, 8).ledger.walk(seqs(inner)[-1]))


@pytest.mark.parametrize("error", [Denied("403"), Unavailable("timeout")])
def test_a_store_that_refuses_is_69_and_never_an_empty_run(error: Exception) -> None:
    store, _ = begun()

    class Refusing(Wrapper):
        def stat(self, ref: object) -> object:  # type: ignore[override]
            raise error

        def read_range(self, *args: object) -> bytes:  # type: ignore[override]
            raise error

    with pytest.raises(StorageUnreachable) as caught:
        RunLedger(Refusing(store), PROJECT, RUN, QuietRuntime()).peek()
    assert caught.value.exit_code == Exit.STORAGE_UNREACHABLE


def test_a_refused_first_send_is_69_not_unknown() -> None:
    store, client = begun(FaultyStore(MemoryStore()))
    assert isinstance(store, FaultyStore)
    store.script("put_if_absent", Denied("read-only"))
    with pytest.raises(StorageUnreachable, match="read-only"):
        client.commit(10)
