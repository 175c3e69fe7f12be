"""Finds out how a store is reached: whose credentials, how fast, how full; knows no run and shows no secret."""

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
from storage.retry import patiently
from storage.selftest import self_test
from storage.wrapper import innermost

SIZES = (250_000, 2_000_000, 8_000_000)
"""Bytes sent and fetched to measure the speed: the next size if one passed too soon to be believed."""
LONG_ENOUGH_S = 0.25
SLOW = 500_000
"""Bytes a second below which a checkpoint of some ten megabytes takes minutes."""
RACERS = 8
ATTEMPTS = 4
"""How often a store is asked what it may tell of itself while it gives no answer."""
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
        """Where they come from, never what they are; None if there are none."""
        ...


@runtime_checkable
class Describes(Protocol):
    """A store that has more to say of itself than others."""

    def describe(self) -> list[str]:
        """Lines for people, what nobody can rely on included. Raises StoreError where this client cannot write."""
        ...


@dataclass
class Reach:
    """What was found out about one store; None is what was not, or what it does not tell."""

    address: str
    used_for: str
    """'ledger', 'checkpoints' or both."""
    there: bool = True
    """Whether anybody has made it yet; if not, its disk was looked at."""
    answer_s: float | None = None
    credentials: str | None = None
    """Where they come from; '' where none are needed."""
    exclusive: bool | None = None
    """Whether of several exclusive writes by two clients exactly one won."""
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
    """Look at everything and fill `found` in; what a person should know is told, of what is well only the essence.

    `second` is another client of the same store. Writes a few objects under `selftest/` and removes them.
    Raises StoreError at the first thing that stops a session; what was found until then stays in `found`.
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
    """Seconds of a request for something small; the first one, which also connects, does not count."""
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
    except BadAddress:
        found.exclusive = False
        raise
    found.exclusive = True
    yield Finding("store", True, f"{found.address} keeps its promises (self-test passed)")


def _described(store: Store, runtime: Runtime) -> Iterator[Finding]:
    inner = innermost(store)
    if isinstance(inner, Describes):
        yield from (Finding("store", True, line) for line in _patiently(inner.describe, runtime))


def _patiently(ask: Callable[[], T], runtime: Runtime) -> T:
    """Of what only some kinds of store tell, around which no wrapper asks again."""
    return patiently(ask, sleep=runtime.sleep, jitter=lambda: int(runtime.token()[:8], 16) / 2**32, attempts=ATTEMPTS)


def _speed(found: Reach) -> Iterator[Finding]:
    up, down = found.upload or 0.0, found.download or 0.0
    text = f"{up / 1e6:.1f} MB/s up, {down / 1e6:.1f} MB/s down"
    slow = min(up, down) < SLOW
    advice = "Let checkpoints be rarer (checkpoint.every_steps)." if slow else ""
    yield Finding("speed", not slow, text, advice, tabled=True)


def speed(store: Store, runtime: Runtime) -> tuple[float, float]:
    """Bytes a second up and down, of one object at a time that is removed again. Raises StoreError.

    The bytes look random: a line or a disk that compresses gains nothing.
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
