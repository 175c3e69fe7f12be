"""Makes runs, entries and runtimes for the tests of ledger, rules and registry; no threads, no real clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random
from typing import Any

from relay.core.checkpoint.passedover import guard
from relay.core.clock import Event, Task
from relay.core.errors import StorageUnreachable
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.changes import By, Commit, Genesis, Lease, Release, TookOver
from relay.core.ledger.entry import Entry, decode, encode
from relay.core.ledger.ledger import MACHINE, RunLedger, View
from relay.core.ledger.rules import apply
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.names import Names
from relay.core.runs.opening import Pair
from storage.base import Store
from storage.memory import MemoryStore

PROJECT, RUN = "proj", "run_a"
NAMES = Names(PROJECT, RUN)


class QuietRuntime:
    """Tokens from a seed, sleeps that only add up."""

    def __init__(self, seed: int = 0) -> None:
        self.random, self.slept = Random(seed), 0.0

    def monotonic(self) -> float:
        return self.slept

    def wall(self) -> float:
        return 1.7e9 + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds

    def token(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    def event(self) -> Event:
        return threading.Event()

    def lock(self) -> AbstractContextManager[object, bool | None]:
        return threading.Lock()

    def spawn(self, name: str, body: Callable[[], None]) -> Task:
        raise AssertionError("these tests start no threads")


class Clock:
    """A store's clock that a test moves."""

    def __init__(self, now: float = 1.7e9) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def id_of(number: int) -> str:
    return f"{number:032x}"


def pair_of(store: Store, checkpoints: Store | None = None, seed: int = 1, expected: str | None = None) -> Pair:
    """The stores as session `seed` sees them."""
    return Pair(store, checkpoints or store, QuietRuntime(seed), id_of(seed), expected)


def genesis(project: str = PROJECT, run: str = RUN, **more: Any) -> Genesis:
    plain: dict[str, Any] = {"config": {"lr": 0.1}, "config_hash": "c" * 64}
    return Genesis(
        project=project, run=run, run_id=id_of(1), ledger_store=id_of(2), checkpoint_store=id_of(2), **plain | more
    )


def checkpoint(step: int, epoch: int, names: Names = NAMES, **more: Any) -> Checkpoint:
    manifest = names.manifest(step, epoch)
    plain: dict[str, Any] = {"manifest": manifest, "ref": manifest, "sha256": "a" * 64, "state_hash": "b" * 64}
    return Checkpoint(step=step, epoch=epoch, bytes=1000, **plain | more)


class Client:
    """One session's process: its own ledger object on a shared store."""

    def __init__(self, store: Store, number: int, account: str = "account_1") -> None:
        self.runtime = QuietRuntime(number)
        self.session, self.account, self.epoch = id_of(1000 + number), account, 0
        self.ledger = RunLedger(store, PROJECT, RUN, self.runtime)
        guard(self.ledger, store)

    def begin(self) -> View:
        return self.ledger.begin(genesis(), session=self.session)[0]

    def lease(self, **more: Any) -> View:
        def build(state: RunState) -> Lease:
            gone = TookOver(epoch=state.epoch, reason="silent", seconds=60.0) if state.holder else None
            return Lease(target_steps=10_000, took_over=gone, **more)

        view = self.ledger.append("lease", build, session=self.session, account=self.account)
        self.epoch = view.state.epoch
        return view

    def append(self, kind: str, build: Callable[[RunState], Any], **more: Any) -> View:
        return self.ledger.append(kind, build, session=self.session, account=self.account, epoch=self.epoch, **more)

    def commit(self, step: int, **more: Any) -> View:
        return self.append("commit", lambda state: Commit(checkpoint=checkpoint(step, self.epoch)), **more)

    def commit_past(self, step: int) -> View:
        """Commit a step; where slots cannot be read, a lease passes over them first, as a later session's would."""
        try:
            return self.commit(step)
        except StorageUnreachable:
            self.lease()
            return self.commit(step)

    def release(self, seconds: float = 60.0) -> View:
        return self.append("release", lambda state: Release(reason="budget", seconds=seconds))


def begun(store: Store | None = None) -> tuple[MemoryStore | Store, Client]:
    """A store with a run, and a client that holds its lease."""
    store = store or MemoryStore()
    client = Client(store, 1)
    client.begin()
    client.lease()
    return store, client


def forged(raw: bytes, last: Entry, /, **fields: Any) -> bytes:
    """An entry after `raw` (whose entry is `last`), with its SHA-256 right and some fields wrong."""
    plain: dict[str, Any] = {
        "seq": last.seq + 1,
        "base": last.seq,
        "parent": digest(raw),
        "nonce": id_of(77),
        "kind": "incident",
        "session": id_of(66),
        "account": None,
        "epoch": last.epoch,
        "at": last.at,
        "change": {"cause": "x", "text": "y", "step": 0},
        "state": last.state,
    }
    return encode(Entry.model_validate_json(dumps(plain | fields)))


def follower(raw: bytes, last: Entry, state: RunState, /, **fields: Any) -> bytes:
    """A proper incident entry after `raw` (whose entry is `last`), as a writer without the lease makes it."""
    change = {"cause": "note", "text": "hello", "step": 0, "failure": None}
    by = By(id_of(66), None, last.epoch, last.at)
    after = apply(state, "incident", change, by, tuple(range(fields.get("base", last.seq) + 1, fields.get("seq", 0))))
    return forged(raw, last, change=change, state=after.model_dump(mode="json"), **fields)


def raw(store: Store, seq: int) -> bytes:
    return store.get(store.ref(f"{NAMES.ledger}{seq:020d}.json"))


def overwrite(store: Store, seq: int, data: bytes) -> None:
    """A change that only damage or an outsider makes."""
    store.put(f"{NAMES.ledger}{seq:020d}.json", data)


def seqs(store: Store) -> list[int]:
    """The slots that hold an entry."""
    return [int(stat.name[-25:-5]) for stat in store.list(NAMES.ledger)]


def nonces(store: Store) -> list[str]:
    """Of the entries, by slot."""
    return [decode(raw(store, seq), MACHINE.kinds, seq).nonce for seq in seqs(store)]
