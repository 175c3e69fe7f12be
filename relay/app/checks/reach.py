"""Measures a store: credentials, speed, free space. Shows no secret."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from relay.app.checks.doctor import Finding, clocks
from relay.app.machine.skew import skew
from relay.core.clock import Runtime
from storage.base import BadAddress, Denied, Missing, Store
from storage.capabilities import free
from storage.meeting import Pace, doubt, meet
from storage.retry import patiently
from storage.selftest import self_test
from storage.wrapper import innermost

SIZES = (250_000, 2_000_000, 8_000_000)
"""Bytes sent and fetched to measure the speed; the next size if one took too short a time to be reliable."""
LONG_ENOUGH_S = 0.25
SLOW = 500_000
"""Bytes a second; below it a checkpoint of some tens of megabytes takes minutes."""
RACERS = 8
ATTEMPTS = 4
"""How often a question to the store itself is tried."""
_FROM = {
    "env": "environment variables",
    "shared-credentials-file": "~/.aws/credentials",
    "config-file": "~/.aws/config",
    "iam-role": "this machine's role",
    "container-role": "this container's role",
    "assume-role": "an assumed role",
    "sso": "a single sign-on",
}

T = TypeVar("T")


@runtime_checkable
class HasCredentials(Protocol):
    """A store that needs credentials."""

    def credentials_source(self) -> str | None:
        """Their source, never their value; None if there are none."""
        ...


@runtime_checkable
class Describes(Protocol):
    """A store that describes itself further."""

    def describe(self) -> list[str]:
        """Lines for people, without guarantees. Raises StoreError if this client cannot write."""
        ...


@runtime_checkable
class Warns(Protocol):
    """A store that may shut others out."""

    def warnings(self) -> list[str]:
        """Lines for people, before anything is written: what it cannot promise. Raises StoreError."""
        ...


def warnings(store: Store) -> list[str]:
    """What the store cannot promise, one line each; none for most stores. Raises StoreError."""
    inner, unknown = innermost(store), doubt(store)
    return [*([unknown] if unknown else []), *(inner.warnings() if isinstance(inner, Warns) else [])]


@dataclass
class Reach:
    """Measurements of one store; None means unknown."""

    address: str
    used_for: str
    """'ledger', 'checkpoints' or both."""
    there: bool = True
    """Whether the store exists; if not, its disk was checked."""
    answer_s: float | None = None
    credentials: str | None = None
    """Their source; '' if none are needed."""
    exclusive: bool | None = None
    """Whether exactly one of several exclusive writes by two clients succeeded."""
    skew_s: float | None = None
    clock_is_local: bool = False
    upload: float | None = None
    """Bytes a second."""
    download: float | None = None
    free: int | None = None
    """Bytes that may still be stored."""
    sessions: int | None = None
    """About how many sessions fit until it is full."""
    why_unknown: str = ""
    """Why `sessions` is None."""


def reach(store: Store, second: Store, found: Reach, runtime: Runtime) -> Iterator[Finding]:
    """Measure the store, fill in `found` and yield the findings.

    `second` is another client of the same store. Writes a few objects under `selftest/` and removes them.
    Raises StoreError at the first fault that stops a session; `found` keeps the measurements made until then.
    """
    yield from _credentials(store, found)
    found.answer_s = _answer(store, runtime)
    with suppress(Denied):  # a token that may not ask for the quota can still train
        found.free = _patiently(lambda: free(store), runtime)  # before anything is written: it may be full
    yield from _promises(store, second, found, runtime)
    yield from _described(store, runtime)
    found.skew_s, found.clock_is_local = skew(store, runtime), store.clock_is_local
    yield from clocks(found.skew_s)
    found.upload, found.download = speed(store, runtime)
    yield from _speed(found)


def _credentials(store: Store, found: Reach) -> Iterator[Finding]:
    inner = innermost(store)
    if not isinstance(inner, HasCredentials):
        found.credentials = ""
        return
    source = inner.credentials_source()
    found.credentials = _FROM.get(source, source) if source else None
    yield Finding(
        "credentials", source is not None, f"from {found.credentials}" if source else "none found", tabled=True
    )


def _answer(store: Store, runtime: Runtime) -> float:
    """Seconds of a small request; the first one also connects and does not count."""
    took = 0.0
    for _ in range(2):
        began = runtime.monotonic()
        if store.unique_names:
            with suppress(Missing):
                store.stat(store.ref("selftest/absent"))
        else:
            store.now()
        took = runtime.monotonic() - began
    return took


def _promises(store: Store, second: Store, found: Reach, runtime: Runtime) -> Iterator[Finding]:
    try:
        self_test(store, second=second, racers=RACERS, token=runtime.token, sleep=runtime.sleep)
        meet(store, Pace(runtime.token, runtime.sleep, runtime.monotonic), None)
    except BadAddress:
        found.exclusive = False
        raise
    found.exclusive = True
    yield Finding("store", True, f"{found.address} passed the self-test")


def _described(store: Store, runtime: Runtime) -> Iterator[Finding]:
    inner = innermost(store)
    if isinstance(inner, Describes):
        yield from (Finding("store", True, line) for line in _patiently(inner.describe, runtime))
    for line in _patiently(lambda: warnings(store), runtime):
        text, _, fix = line.rpartition(". ")
        yield Finding("store", False, text, fix)


def _patiently(ask: Callable[[], T], runtime: Runtime) -> T:
    """Call with retries; for calls of single stores, which no wrapper retries."""
    return patiently(ask, sleep=runtime.sleep, jitter=lambda: int(runtime.token()[:8], 16) / 2**32, attempts=ATTEMPTS)


def _speed(found: Reach) -> Iterator[Finding]:
    up, down = found.upload or 0.0, found.download or 0.0
    text = f"{up / 1e6:.1f} MB/s up, {down / 1e6:.1f} MB/s down"
    slow = min(up, down) < SLOW
    advice = "Commit less often (checkpoint.every_steps)." if slow else ""
    yield Finding("speed", not slow, text, advice, tabled=True)


def speed(store: Store, runtime: Runtime) -> tuple[float, float]:
    """Bytes a second (up, down), with one object at a time, which is removed again. Raises StoreError.

    The bytes are random, so compression on the line or disk does not help.
    """
    up = down = 0.0
    for size in SIZES:
        data = hashlib.shake_256(runtime.token().encode()).digest(size)
        began = runtime.monotonic()
        ref = store.put(f"selftest/speed-{runtime.token()}", data)
        try:
            sent = runtime.monotonic()
            store.get(ref)
            fetched = runtime.monotonic()
        finally:
            store.delete(ref)
        up, down = size / max(sent - began, 1e-6), size / max(fetched - sent, 1e-6)
        if min(sent - began, fetched - sent) >= LONG_ENOUGH_S or fetched - began >= 8 * LONG_ENOUGH_S:
            break
    return up, down
