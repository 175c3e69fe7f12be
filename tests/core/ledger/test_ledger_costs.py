"""The cost of reading and growing a ledger, in requests and bytes."""

from __future__ import annotations

import pytest

from relay.core.ledger.changes import By, Commit, Lease, Noted, Release, Retire
from relay.core.ledger.entry import decode, encode
from relay.core.ledger.frozen import MAX_ENTRY_BYTES
from relay.core.ledger.ledger import MACHINE, RunLedger
from relay.core.ledger.rules import apply, links_to_archive
from relay.core.ledger.state import History, NextDigest
from storage.memory import MemoryStore
from tests.core.making import (
    NAMES,
    PROJECT,
    RUN,
    Client,
    QuietRuntime,
    begun,
    checkpoint,
    follower,
    forged,
    id_of,
    overwrite,
    raw,
)
from tests.storage.counting import CountingStore


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
    assert 100_000 < len(encode(entry)) <= MAX_ENTRY_BYTES
