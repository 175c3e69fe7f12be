"""Shares compiled code between sessions through the store, signed with the team's key (P11).

It is advice (P1): if it is absent, late, damaged or forged, the session compiles. A machine reads and writes it only if
its settings allow that.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

from relay.core.clock import Runtime, Task
from relay.core.errors import BadConfig
from relay.core.events import CompileCache, SessionEvent
from relay.core.lease.heartbeat import find
from relay.core.names import CACHES
from relay.core.workload import Kernels
from storage.base import Missing, Stat, Store, StoreError, TooLong

MAX_BYTES = 64_000_000
"""Largest object in the store."""
KEPT = 8
"""Objects that stay in a store: the newest ones."""
AT_ONCE = 4 * KEPT
"""Most objects that one call deletes if space is short."""
WAIT_S = 20.0
"""Longest wait once the session is ready for its first step. Compiling takes about as long."""
SPARE_S = 60.0
"""An upload begins only with this much time beyond the reserve for the session's end."""
FINISH_S = 15.0
"""Longest wait for that upload after the release of the lease."""
VARIABLE = "RELAY_CACHE_KEY"
SHORTEST = 32
"""Fewest characters of a key: 16 random bytes in hexadecimal digits."""
_MAC = "sha256"
_MAC_BYTES = 32
_PURPOSE = "trm-relay compile cache 1"
_NAME = re.compile(re.escape(CACHES) + r"[0-9a-f]{64}")


class NoCacheKey(BadConfig):
    """The settings allow compiled code from the store, but there is no valid key to sign it."""

    def __init__(self, length: int) -> None:
        """`length`: characters of the key, 0 without a key."""
        problem = f"has {length} of the {SHORTEST} characters it needs" if length else "is not set"
        super().__init__(f"cache.allow is on, but {VARIABLE}, the key that signs compiled code, {problem}.")
        self.length = length


def secret_of(environ: Mapping[str, str], allowed: bool) -> bytes | None:
    """The key that signs compiled code; None if this machine does not allow any. Raises NoCacheKey (78)."""
    if not allowed:
        return None
    secret = environ.get(VARIABLE, "").strip()
    if len(secret) >= SHORTEST:
        return os.fsencode(secret)
    raise NoCacheKey(len(secret))


def signature(secret: bytes, key: str, payload: bytes) -> bytes:
    """HMAC-SHA256 over the raw bytes and the cache key that they are stored under."""
    return hmac.digest(secret, f"{_PURPOSE}\n{key}\n".encode() + payload, _MAC)


class CacheRefused(Exception):
    """The stored code is not loaded; `str(e)` is one line with the reason."""


class WarmStart:
    """One session's compiled code: fetched during the restore, uploaded after the first step."""

    def __init__(
        self, runtime: Runtime, store: Store, kernels: Kernels, secret: bytes, event: Callable[[SessionEvent], None]
    ) -> None:
        self._runtime, self._store, self._kernels, self._secret = runtime, store, kernels, secret
        self._event = event
        self._name = CACHES + kernels.key
        self._arrived = runtime.event()
        self._too_late = self._usable = self._refused = False
        self._found: CompileCache | None = None
        self._upload: Task | None = None
        self._sent = 0
        """How many kernels of this process the newest upload held."""

    @property
    def counts(self) -> Callable[[], Mapping[str, int]]:
        """Numbers of kernels that were found, and that this process compiled."""
        return self._kernels.counts

    def begin(self) -> None:
        """Start the download; returns at once."""
        try:
            here = self._kernels.open()
        except OSError as error:
            self._found = CompileCache("unusable", str(error.strerror))
            self._arrived.set()
            return
        self._usable = True
        if here:
            self._found = CompileCache("local", files=here)
            self._arrived.set()
        else:
            self._runtime.spawn("compile cache", self._fetch)

    def settle(self, go_on: Callable[[], bool]) -> None:
        """Wait until the code is unpacked, `WAIT_S` at most and while `go_on()`. Code that arrives later is dropped.

        The wait also ends if the disk hangs while unpacking. Each kernel appears whole, even next to a compiler.
        """
        until = self._runtime.monotonic() + WAIT_S
        while not self._arrived.wait(0.1) and self._runtime.monotonic() < until and go_on():
            pass
        self._too_late = True
        self._event(self._found or CompileCache("late"))

    def offer(self, spare_s: float) -> None:
        """After the first step: upload the compiled code during training, if `spare_s` seconds are enough."""
        if self._usable and spare_s > SPARE_S:
            self._upload = self._runtime.spawn("compile cache", self._send)

    def finish(self, most_s: float, go_on: Callable[[], bool]) -> None:
        """At the end: upload code compiled since, if any, and wait for it while `go_on()`. If time runs out, a later
        session uploads it."""
        until = self._runtime.monotonic() + min(FINISH_S, most_s)

        def patient() -> bool:
            return self._runtime.monotonic() < until and go_on()

        self._join(patient)
        if self._usable and self._compiled > self._sent and patient():
            self._upload = self._runtime.spawn("compile cache", self._send)
            self._join(patient)

    def _join(self, patient: Callable[[], bool]) -> None:
        while self._upload is not None and self._upload.is_alive() and patient():
            self._upload.join(0.1)

    @property
    def _compiled(self) -> int:
        return self._kernels.counts().get("kernels_compiled", 0)

    def _fetch(self) -> None:
        began = self._runtime.monotonic()
        try:
            payload = self._payload()
            if self._too_late:
                return
            files = self._kernels.unpack(payload)
            spent = self._runtime.monotonic() - began
            found = CompileCache("hit", files=files, bytes=len(payload), seconds=spent)
        except Missing:
            found = CompileCache("miss")
        except (CacheRefused, ValueError) as error:
            self._refused = True
            found = CompileCache("refused", str(error))
        except (StoreError, OSError) as error:
            found = CompileCache("unreadable", str(error))
        self._found = found
        self._arrived.set()

    def _payload(self) -> bytes:
        """The signed bytes. Raises Unfit, Missing and other StoreErrors."""
        found = find(self._store, self._name)
        if found is None:
            raise Missing(self._name)
        try:
            data = self._store.get(found.ref, limit=MAX_BYTES)
        except TooLong as error:
            raise CacheRefused(f"longer than {_mb(MAX_BYTES)}") from error
        mac, payload = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if not hmac.compare_digest(mac, signature(self._secret, self._kernels.key, payload)):
            raise CacheRefused(f"its signature is not one by this {VARIABLE} for this key")
        return payload

    def _send(self) -> None:
        try:
            self._sent = self._compiled
            if not self._sent and not self._refused and find(self._store, self._name) is not None:
                return
            payload = self._kernels.pack()
            if len(payload) > MAX_BYTES - _MAC_BYTES:
                raise ValueError(f"{_mb(len(payload))} are more than {_mb(MAX_BYTES)}")
            self._store.put(self._name, signature(self._secret, self._kernels.key, payload) + payload)
            self._event(CompileCache("stored", bytes=len(payload)))
            sweep(self._store)
        except (StoreError, OSError, ValueError) as error:
            self._event(CompileCache("not stored", str(error)))


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def forget_all(store: Store) -> None:
    """Delete compiled code because the store is short of space. A commit waits for this call, so it handles at most
    AT_ONCE objects, however many there are."""
    with suppress(StoreError):
        for stat in list(islice(_stored(store), AT_ONCE)):
            store.delete(stat.ref)


def sweep(store: Store) -> None:
    """Delete all but the newest; a session that needed another one compiles. Raises StoreError."""
    for stat in sorted(_stored(store), key=lambda stat: stat.modified, reverse=True)[KEPT:]:
        store.delete(stat.ref)


def _stored(store: Store) -> Iterator[Stat]:
    return (stat for stat in store.list(CACHES) if _NAME.fullmatch(stat.name))
