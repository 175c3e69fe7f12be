"""Makes sure, once for each address a store is reached at, that it keeps the promises the log rests on (P1)."""

from __future__ import annotations

from relay.core.clock import Runtime
from relay.core.lease.heartbeat import find
from relay.core.ledger.canonical import digest, dumps
from storage.base import Store
from storage.selftest import self_test


def ensure_tested(store: Store, runtime: Runtime) -> None:
    """Before a first append: run the self-test unless the store says that it passed at this address; one look-up then.

    Raises BadAddress, naming the server, if the store must not hold a run; else what the store raises.
    """
    if find(store, passed(store)) is None:
        self_test(store, token=runtime.token, sleep=runtime.sleep)
        record(store)


def record(store: Store) -> None:
    """Note in the store that the self-test passed at this address."""
    store.put(passed(store), dumps({"format": 1}))


def passed(store: Store) -> str:
    """Name of the note. It holds a digest: the same bucket behind another server is tested anew, no address is kept."""
    return f"selftest/passed.{digest(store.address.encode())[:32]}.json"
