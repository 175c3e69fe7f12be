"""The Store interface, its guarantees and its errors; knows nothing of leases, checkpoints or training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NewType, Protocol, runtime_checkable

Ref = NewType("Ref", str)
"""Finds stored bytes again: the key on local, memory, S3 and Dropbox; the file id on Drive."""


class StoreError(Exception):
    """Root of everything a store raises. A new subclass exists only if the caller would act differently.

    StoreError
    ├── Missing        the Ref names nothing (a point read said so; never a guess, never a denial)
    ├── Exists         put_if_absent found the name taken (perhaps by our own re-send: read it)
    ├── Unavailable    no answer, or an outcome nobody knows: retry
    │   └── Throttled  asked to wait: retry after `retry_after` seconds
    ├── QuotaExceeded  the store or disk is full: a person must act
    ├── Denied         credentials or permissions: a person must act
    └── BadAddress     the address cannot be a store (unknown scheme, a mounted Drive, an SDK not installed)
    """


class Missing(StoreError):
    """The Ref names nothing."""


class Exists(StoreError):
    """put_if_absent found the name taken."""


class Unavailable(StoreError):
    """No answer or an unknown outcome; the caller may retry."""


class Throttled(Unavailable):
    """The service asked us to wait."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds to wait before the next attempt."""


class QuotaExceeded(StoreError):
    """No room left; a person must act."""


class Denied(StoreError):
    """Refused by permissions or credentials; a person must act. Never means Missing."""


class BadAddress(StoreError):
    """The address cannot be opened as a store."""


@dataclass(frozen=True)
class Stat:
    """What a store tells of one object. `modified` is the store's clock in unix seconds."""

    ref: Ref
    name: str
    size: int
    modified: float
    sha256: str | None = None
    """Hex digest if the store itself computed one over the whole object, else None."""


@runtime_checkable
class Store(Protocol):
    """Bytes under names, on storage shared by people who trust nothing else of each other.

    Guarantees every backend gives, checked by the one contract suite:

    1. *Atomic*: a reader sees all of a write or none of it.
    2. *Read your writes*: a point read by Ref sees every write that has returned.
    3. *Put-if-absent*: where `unique_names`, of several `put_if_absent` to one name exactly one succeeds.

    What no backend promises: that `list` is complete or fresh (it may hide, it never invents), or that
    `Exists` means somebody else wrote it. All methods raise only StoreError subclasses.
    Names are relative, '/'-separated, lower-case ASCII parts matching [a-z0-9][a-z0-9._-]*; anything else is ValueError.
    """

    address: str
    """Printable address without secrets."""
    unique_names: bool
    """Whether names are unique, so that put_if_absent and ref() work (not on Drive)."""

    def put(self, name: str, data: bytes | Path) -> Ref:
        """Store bytes, or a file's content, durably under `name`, replacing what was there. Atomic."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        """Store bytes only if `name` is free; raises Exists if it is taken. Never retried by itself."""
        ...

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        """The whole object. With `limit`, an object longer than that many bytes raises StoreError unread."""
        ...

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start`; shorter only at the end of the object."""
        ...

    def stat(self, ref: Ref) -> Stat:
        """Size, time and (where known) hash; raises Missing."""
        ...

    def delete(self, ref: Ref) -> None:
        """Remove the object; removing what is not there succeeds."""
        ...

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        """Objects whose name starts with `prefix` (and sorts after `after`), in name order. Advisory."""
        ...

    def now(self) -> float:
        """The store's clock, unix seconds. Writes at most a probe object; read-only stores: see `clock_is_local`."""
        ...

    def ref(self, name: str) -> Ref:
        """The Ref of a name, without asking the store (only where `unique_names`)."""
        ...
