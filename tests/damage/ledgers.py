"""A run of two commits for the tests of damaged and forged entries, and fresh readers of it."""

from __future__ import annotations

from typing import Any

from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.changes import By, Lease, TookOver
from relay.core.ledger.entry import Entry, decode
from relay.core.ledger.fields import Passed
from relay.core.ledger.frozen import MAX_DIGESTS, PASSING
from relay.core.ledger.ledger import MACHINE, RunLedger
from relay.core.ledger.rules import apply
from relay.core.ledger.state import RunState
from storage.memory import MemoryStore
from tests.core.making import PROJECT, RUN, Client, QuietRuntime, begun, forged, id_of, overwrite, raw


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


def passing(store: MemoryStore, base: Entry, seq: int, epoch: int) -> None:
    """A lease in format 5 that follows properly from `base`, in any slot."""
    voids = range(base.seq + 1, seq)
    passed = Passed(digests=tuple(digest(raw(store, slot)) for slot in voids)[-MAX_DIGESTS:]) if voids else None
    before = RunState.model_validate_json(dumps(base.state))
    gone = TookOver(epoch=before.epoch, reason="silent", seconds=1.0) if before.holder else None
    change = Lease(target_steps=10, took_over=gone).model_dump(mode="json")
    state = apply(before, "lease", change, By(id_of(66), "mallory", epoch, base.at), tuple(voids), passed)
    fields = {"format": PASSING, "seq": seq, "base": base.seq, "kind": "lease", "account": "mallory", "epoch": epoch}
    fields |= {"passed": passed.model_dump(mode="json")} if passed else {}
    overwrite(
        store, seq, forged(raw(store, seq - 1), base, **fields, change=change, state=state.model_dump(mode="json"))
    )
