"""The ledger on a store: races, lost replies, fencing, damage, and what reading costs (P2, P4, P5)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from relay.changes import By, Commit, Lease, Noted, Refused, Release, Retire
from relay.entry import MAX_BYTES, decode, encode
from relay.errors import BadConfig, BadData, Exit, Fenced, StorageUnreachable
from relay.ledger import MACHINE, Intent, RunLedger, Unsettled
from relay.rules import apply, links_to_archive
from relay.state import MAX_LINKS, History, NextDigest, RunState
from relay.verify import verify
from storage.base import Denied, Store, Unavailable
from storage.memory import MemoryStore
from storage.wrapper import CountingStore, Wrapper
from tests.relay.runs import (
    NAMES,
    PROJECT,
    RUN,
    Client,
    QuietRuntime,
    begun,
    checkpoint,
    follower,
    forged,
    genesis,
    id_of,
    overwrite,
    raw,
)
from tests.storage.faulty import FaultyStore


def seqs(store: Store) -> list[int]:
    return [int(stat.name[-25:-5]) for stat in store.list(NAMES.ledger)]


def nonces(store: Store) -> list[str]:
    return [decode(raw(store, seq), MACHINE.kinds, seq).nonce for seq in seqs(store)]


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
        with pytest.raises(BadConfig, match="no run run_a in project proj") as error:
            act()
        assert error.value.exit_code == Exit.BAD_CONFIG


def test_a_ledger_copied_under_another_name_is_refused() -> None:
    store, _ = begun()
    for seq in seqs(store):
        store.put(f"runs/proj/other/ledger/{seq:020d}.json", raw(store, seq))
    with pytest.raises(BadData, match="is that of run run_a"):
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
        with pytest.raises(Fenced, match="held by account_2") as error:
            act()
        assert error.value.exit_code == Exit.FENCED
    assert seqs(store) == before
    new.release()
    with pytest.raises(Fenced, match="held by nobody"):
        old.commit(20)
    with pytest.raises(Fenced):
        new.commit(20)


def test_a_lease_taken_while_ours_was_being_appended_fences_it() -> None:
    store, old = begun()
    new = Client(store, 2)

    def build(state: RunState) -> Commit:
        new.lease()
        return Commit(checkpoint=checkpoint(10, 1))

    with pytest.raises(Fenced):
        old.append("commit", build)
    assert new.ledger.read().state.step == 0


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
        with pytest.raises(BadData, match="an entry has been lost"):
            client.ledger.check_epochs(store)
        store.delete(store.ref(name))


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


def long_log(inner: MemoryStore, length: int) -> None:
    """A run's log of `length` entries, of which only the newest two (and what no reader asks for) are there."""
    client = begun(inner)[1]
    view = client.ledger.read()
    for seq in range(view.seq + 1, length - 2):
        overwrite(inner, seq, b"nobody reads this")
    older = view.entry.model_copy(update={"seq": length - 2, "base": length - 3, "nonce": id_of(5)})
    overwrite(inner, length - 2, encode(older))
    overwrite(inner, length - 1, follower(encode(older), older, view.state))


@pytest.mark.parametrize(("hinted", "reads"), [(True, 6), (False, 31)])
def test_reading_10000_entries_costs_few_requests(hinted: bool, reads: int) -> None:
    inner = MemoryStore()
    long_log(inner, 10_000)
    inner.delete(inner.ref(NAMES.ledger.removesuffix("/") + ".hint"))
    if hinted:
        RunLedger(inner, PROJECT, RUN, QuietRuntime()).chain.log.publish_hint(9_999, "0" * 64)
    store = CountingStore(inner)
    ledger = RunLedger(store, PROJECT, RUN, QuietRuntime())
    assert ledger.read().seq == 9_999
    assert store.reads <= reads and store.counts["list"] == 1
    store.counts.clear()
    assert ledger.read().seq == 9_999
    assert store.reads <= 2 and store.counts["list"] == 0


def test_an_entry_that_claims_to_pass_over_the_whole_log_costs_few_requests() -> None:
    inner = MemoryStore()
    long_log(inner, 10_000)
    last = decode(raw(inner, 9_999), MACHINE.kinds, 9_999)
    overwrite(inner, 10_000, forged(raw(inner, 9_999), last, base=0))
    store = CountingStore(inner)
    view = RunLedger(store, PROJECT, RUN, QuietRuntime()).read()
    assert (view.seq, view.entry.seq) == (10_000, 9_999)
    assert store.reads <= 45


def test_a_reader_far_behind_reads_only_the_newest() -> None:
    store = CountingStore(MemoryStore())
    reader, writer = Client(store, 2), begun(store.inner)[1]
    reader.ledger.read()
    for step in range(1, 60):
        writer.commit(step)
        if step % 20 == 0:
            writer.append("retire", lambda s: Retire(retire=tuple(c.key for c in s.retained[:-2])))
    store.counts.clear()
    assert reader.ledger.read() == writer.ledger.read()
    assert store.reads <= 90
    for step in range(60, 160):
        writer.commit(step)
        if step % 20 == 0:
            writer.append("retire", lambda s: Retire(retire=tuple(c.key for c in s.retained[:-2])))
    store.counts.clear()
    assert reader.ledger.read().state.step == 159
    assert store.reads <= 20


def test_an_append_costs_few_requests() -> None:
    store = CountingStore(begun()[0])
    client = Client(store, 1)
    client.ledger.read()
    client.epoch = 1
    client.commit(1)
    store.counts.clear()
    client.commit(2)
    assert store.reads <= 2
    assert (store.counts["put_if_absent"], store.counts["put"], store.counts["now"]) == (1, 0, 1)


def test_500_accounts_in_a_run_keep_an_entry_small() -> None:
    client = begun()[1]
    client.release()
    state = client.ledger.read().state
    by = By(id_of(1), "account_0", 0, state.updated)
    for number in range(1, 1_500):
        account = f"account-of-a-person-with-a-rather-long-name-{number % 500:03d}"
        by = By(id_of(number), account, state.epoch + 1, by.at + 600)
        moved = links_to_archive(state)
        total = (state.history.links if state.history else 0) + len(moved)
        history = History(ref=NAMES.history(state.epoch), sha256="a" * 64, links=total) if moved else None
        state = apply(state, "lease", Lease(history=history).model_dump(mode="json"), by)
        if number % 40 == 0:
            where = checkpoint(number, state.epoch, next=NextDigest(step=number + 1, path="p" * 200, digest="d" * 64))
            state = apply(state, "commit", Commit(checkpoint=where).model_dump(mode="json"), by)
        release = Release(reason="budget " * 20, seconds=550.0)
        state = apply(state, "release", release.model_dump(mode="json"), by)
    for number in range(30):
        note = Noted(cause="c" * 200, text="t" * 500, step=number)
        state = apply(state, "incident", note.model_dump(mode="json"), by)
    assert len(state.usage) == 501 and len(state.retained) > 30
    assert sum(one.seconds for one in state.usage.values()) == pytest.approx(550.0 * 1_499 + 60.0)
    entry = client.ledger.read().entry.model_copy(update={"state": state.model_dump(mode="json")})
    assert 100_000 < len(encode(entry)) <= MAX_BYTES
