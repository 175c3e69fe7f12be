"""How a store far away is reached: whose credentials, and how fast; knows no run and shows no secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from relay.clock import Runtime
from relay.doctor import Finding
from storage.base import Store
from storage.wrapper import innermost

TRIAL = 4_000_000
"""Bytes sent and fetched to measure the speed."""
SLOW = 500_000
"""Bytes a second below which a checkpoint of some ten megabytes takes minutes."""
_FROM = {
    "env": "environment variables",
    "shared-credentials-file": "~/.aws/credentials",
    "config-file": "~/.aws/config",
}


@runtime_checkable
class HasCredentials(Protocol):
    """A store that needs credentials."""

    def credentials_source(self) -> str | None:
        """Where they come from, never what they are; None if there are none."""
        ...


def reach(store: Store, runtime: Runtime) -> Iterator[Finding]:
    """Credentials' source and the speed up and down; nothing for stores on this machine. Raises StoreError."""
    inner = innermost(store)
    if not isinstance(inner, HasCredentials):
        return
    source = inner.credentials_source()
    yield Finding("credentials", source is not None, f"from {_FROM.get(source, source)}" if source else "none found")
    up, down = speed(store, runtime)
    text = f"{up / 1e6:.1f} MB/s up, {down / 1e6:.1f} MB/s down"
    slow = min(up, down) < SLOW
    yield Finding("speed", not slow, text, "Let checkpoints be rarer (checkpoint.every_steps)." if slow else "")


def speed(store: Store, runtime: Runtime) -> tuple[float, float]:
    """Bytes a second up and down, of one object that is removed again. Raises StoreError."""
    begun = runtime.monotonic()
    ref = store.put(f"selftest/speed-{runtime.token()}", bytes(TRIAL))
    try:
        sent = runtime.monotonic()
        store.get(ref)
        fetched = runtime.monotonic()
    finally:
        store.delete(ref)
    return TRIAL / max(sent - begun, 1e-6), TRIAL / max(fetched - sent, 1e-6)
