"""Sends the holder's heartbeats while it does work, and reads them. They are advice: the log decides who may write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from relay.core.clock import Runtime, Task
from relay.core.errors import RelayError
from relay.core.lease.signals import StopSignal
from relay.core.ledger.canonical import NotCanonical, dumps, loads
from relay.core.names import Names
from relay.core.resources import exhausted
from storage.base import Creates, Denied, Missing, Ref, Stat, Store, StoreError, TooLong

MAX_BYTES = 2_000
STEPS_OF_SILENCE = 10
"""Training counts as alive for this many times its longest step after the last one."""


class Heartbeat:
    """A thread that writes `heartbeat.<epoch>` every TTL/6 while training advances or a bounded phase runs (P5)."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        names: Names,
        epoch: int,
        ttl_s: float,
        superseded: Callable[[], bool],
        signal: StopSignal,
        beat: str | None = None,
    ) -> None:
        """`store` is a client without retries; `beat` is the Ref that the lease named.

        `superseded` re-reads the tail; it raises a RelayError if it cannot.
        """
        self._runtime, self._store, self._names, self._epoch = runtime, store, names, epoch
        self._ttl, self._superseded, self._signal = ttl_s, superseded, signal
        if beat:
            cast(Creates, store).claim(names.heartbeat(epoch), Ref(beat))
        self._over = runtime.event()
        now = runtime.monotonic()
        self._last_beat = now
        """When the lease was last known to be ours: by the lease entry, a heartbeat, or a read of the tail."""
        self._moved_at, self._longest_step = now, 0.0
        self._phases: list[list[float]] = []
        """The end of each and its most seconds, the innermost last."""
        self._step = 0
        self._task: Task | None = None

    def start(self) -> None:
        """Start the thread. The lease entry was the first sign of life."""
        self._task = self._runtime.spawn("heartbeat", self._run)

    def stop(self) -> None:
        """End the thread. The heartbeat object stays, which is harmless."""
        self._over.set()

    def progress(self, step: int) -> None:
        """A training step is done."""
        now = self._runtime.monotonic()
        self._longest_step = max(self._longest_step, now - self._moved_at) if self._step else 0.0
        self._moved_at, self._step = now, step

    @contextmanager
    def phase(self, most_s: float) -> Iterator[None]:
        """Count work without steps (restore, compile, evaluate, upload) as alive for at most `most_s` seconds."""
        phase = [self._runtime.monotonic() + most_s, most_s]
        self._phases.append(phase)
        try:
            yield
        finally:
            self._phases.remove(phase)
            self._moved_at = self._runtime.monotonic()

    def advance(self) -> None:
        """The work of the innermost phase advances: its time begins again."""
        phase = self._phases[-1]
        phase[0] = self._runtime.monotonic() + phase[1]

    def still_ours(self) -> bool:
        """Read the tail if the last sign of life is more than TTL/2 old. False, and the session is stopped, if fenced.

        Raises StorageUnreachable if the tail cannot be read.
        """
        if self._runtime.monotonic() - self._last_beat <= self._ttl / 2:
            return self._signal.reason != "fenced"
        if self._superseded():
            self._signal.ask("fenced")
            return False
        self._last_beat = self._runtime.monotonic()
        return True

    def _run(self) -> None:
        while not self._over.wait(self._ttl / 6):
            if not self._alive():
                continue
            try:
                if not self.still_ours():
                    return
                self._beat()
                self._read_request()
            except (StoreError, RelayError):
                continue  # the next append decides; without heartbeats other sessions may only take over
            except Exception as error:
                if exhausted(error) is None:  # a machine that lacks memory or threads may have them again
                    raise

    def _alive(self) -> bool:
        now = self._runtime.monotonic()
        patience = max(self._ttl / 2, STEPS_OF_SILENCE * self._longest_step)
        return any(now < until for until, _ in self._phases) or now - self._moved_at < patience

    def _beat(self) -> None:
        self._store.put(
            self._names.heartbeat(self._epoch), dumps({"format": 1, "epoch": self._epoch, "step": self._step})
        )
        self._last_beat = self._runtime.monotonic()

    def _read_request(self) -> None:
        note = read_stop_request(self._store, self._names, self._epoch)
        if note is not None:
            self._signal.ask("stop", note)


def read_stop_request(store: Store, names: Names, epoch: int) -> str | None:
    """The note of a stop request (`rotate_accounts.py stop`), or None without a valid one. Raises StoreError."""
    place = find(store, names.stop(epoch))
    if place is None:
        return None
    try:
        found = loads(store.get(place.ref, limit=MAX_BYTES), MAX_BYTES)
    except (Missing, TooLong, NotCanonical):
        return None
    if not isinstance(found, dict) or found.get("format") != 1 or found.get("epoch") != epoch:
        return None
    return str(found.get("note", ""))[:200]


def request_stop(store: Store, names: Names, epoch: int, note: str) -> None:
    """Ask the holder of `epoch` to end as planned. The holder reads the request with its next heartbeat."""
    store.put(names.stop(epoch), dumps({"format": 1, "epoch": epoch, "note": note[:200]}))


def place_of_beats(store: Store) -> Ref | None:
    """The Ref for the heartbeats of a new lease; None where their names suffice."""
    return None if store.unique_names else cast(Creates, store).reserve(1)[0]


def sign_of_life(store: Store, names: Names, epoch: int, beat: str | None = None) -> float | None:
    """Store time of an epoch's newest heartbeat, or None; `beat` is the Ref that its lease named.

    An unreadable Ref is not a sign of life: otherwise a lease that names one could never be taken over.
    Raises StoreError.
    """
    try:
        found = _stat(store, Ref(beat)) if beat else find(store, names.heartbeat(epoch))
    except Denied:
        if not beat:
            raise
        found = None
    return found.modified if found else None


def newest_sign(since: float, beat: float | None, now: float) -> float:
    """The newest sign of life of a lease taken at `since`, all in store time.

    A lease from the future was written while the store's clock was ahead; then only a heartbeat, if any, counts.
    """
    if beat is None:
        return since
    return beat if since > now else max(since, beat)


def find(store: Store, name: str) -> Stat | None:
    """Look an object up by name; advisory."""
    if store.unique_names:
        return _stat(store, store.ref(name))
    return next((stat for stat in store.list(name) if stat.name == name), None)


def _stat(store: Store, ref: Ref) -> Stat | None:
    try:
        return store.stat(ref)
    except Missing:
        return None
