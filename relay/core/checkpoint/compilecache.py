"""Carries compiled code between sessions through the store, signed with this team's key (P11); knows no compiler.

It is advice (P1): whatever is absent, late, damaged or forged, the session goes on and compiles. Only a machine that
allows it reads or writes any of it.
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

# --- Carries compiled code between sessions through the store, signed with this team's key (P11) --------------------

MAX_BYTES = 64_000_000
"""Of one object in the store."""
KEPT = 8
"""Objects that stay in a store, newest first."""
AT_ONCE = 4 * KEPT
"""Most that are deleted where space is short."""
WAIT_S = 20.0
"""Longest wait once the session is ready for its first step: compiling takes about as long."""
SPARE_S = 60.0
"""Time there must be beyond the end's reserve for an upload to begin."""
FINISH_S = 15.0
"""Longest wait for that upload after the lease has been given back."""
VARIABLE = "RELAY_CACHE_KEY"
SHORTEST = 32
"""Characters of a key: 16 random bytes in hexadecimal digits."""
_MAC = "sha256"
_MAC_BYTES = 32
_PURPOSE = "trm-relay compile cache 1"
_NAME = re.compile(re.escape(CACHES) + r"[0-9a-f]{64}")


class NoCacheKey(BadConfig):
    """This machine allows compiled code from the store, without a key that signs it."""

    def __init__(self, length: int) -> None:
        """`length`: characters of the key that there is, 0 for none."""
        is_so = f"has {length} characters of the {SHORTEST} it needs" if length else "is not set"
        super().__init__(
            f"cache.allow lets this machine run compiled code from the store, and {VARIABLE}, which signs it, {is_so}."
        )
        self.length = length


def secret_of(environ: Mapping[str, str], allowed: bool) -> bytes | None:
    """The key that signs compiled code; None where this machine does not allow any. Raises NoCacheKey (78)."""
    if not allowed:
        return None
    secret = environ.get(VARIABLE, "").strip()
    if len(secret) >= SHORTEST:
        return os.fsencode(secret)
    raise NoCacheKey(len(secret))


def signature(secret: bytes, key: str, payload: bytes) -> bytes:
    """HMAC-SHA256 over the raw bytes and the key under which they are offered."""
    return hmac.digest(secret, f"{_PURPOSE}\n{key}\n".encode() + payload, _MAC)


class Unfit(Exception):
    """What the store offers is not loaded; one line that says why."""


class WarmStart:
    """One session's compiled code: fetched beside the restore, offered after the first step."""

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
        """Of those that this process compiled."""

    @property
    def counts(self) -> Callable[[], Mapping[str, int]]:
        """Compiled code that was found, and that this process had to make."""
        return self._kernels.counts

    def begin(self) -> None:
        """Start to fetch; returns at once."""
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
        """Wait until it is unpacked, `WAIT_S` at most and while `go_on()`; what arrives later is not.

        A disk that hangs in unpacking is not waited for either: each kernel appears whole, also beside a compiler.
        """
        until = self._runtime.monotonic() + WAIT_S
        while not self._arrived.wait(0.1) and self._runtime.monotonic() < until and go_on():
            pass
        self._too_late = True
        self._event(self._found or CompileCache("late"))

    def offer(self, spare_s: float) -> None:
        """After the first step: send what was compiled, behind training, if the time that is left allows it."""
        if self._usable and spare_s > SPARE_S:
            self._upload = self._runtime.spawn("compile cache", self._send)

    def finish(self, most_s: float, go_on: Callable[[], bool]) -> None:
        """At the end: send what was compiled since, if anything, and wait for it while `go_on()`; another session has
        time again."""
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
        except (Unfit, ValueError) as error:
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
            raise Unfit(f"longer than {_mb(MAX_BYTES)}") from error
        told, payload = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if not hmac.compare_digest(told, signature(self._secret, self._kernels.key, payload)):
            raise Unfit(f"its signature is not one by this {VARIABLE} for this key")
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
    """The store is short of space: compiled code is what can best be done without. A commit waits for this: however
    many objects somebody has put there, few are looked at."""
    with suppress(StoreError):
        for stat in list(islice(_stored(store), AT_ONCE)):
            store.delete(stat.ref)


def sweep(store: Store) -> None:
    """Delete all but the newest; whoever still wanted one compiles. Raises StoreError."""
    for stat in sorted(_stored(store), key=lambda stat: stat.modified, reverse=True)[KEPT:]:
        store.delete(stat.ref)


def _stored(store: Store) -> Iterator[Stat]:
    return (stat for stat in store.list(CACHES) if _NAME.fullmatch(stat.name))
