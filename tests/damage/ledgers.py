"""A run of two commits for the tests of damaged and forged entries, and fresh readers of it."""

from __future__ import annotations

from typing import Any

from relay.core.ledger.entry import Entry, decode
from relay.core.ledger.ledger import MACHINE, RunLedger
from storage.memory import MemoryStore
from tests.core.making import PROJECT, RUN, Client, QuietRuntime, begun, raw


def reader(store: Any) -> RunLedger:
    return RunLedger(store, PROJECT, RUN, QuietRuntime())


def entry(store: MemoryStore, seq: int) -> Entry:
    return decode(raw(store, seq), MACHINE.kinds, seq)


def worked() -> tuple[MemoryStore, Client]:
    """Slots: 0 genesis, 1 lease, 2 commit 10, 3 commit 20."""
    store = MemoryStore()
    client = begun(store)[1]
    client.commit(10)
    client.commit(20)
    return store, client
