"""The Store interface, its guarantees and its errors; knows nothing of leases, checkpoints or training."""

from __future__ import annotations

import re
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
    ├── Exists         put_if_absent or put_new found the name taken (perhaps by our own re-send: read it)
    ├── Unavailable    no answer, or an outcome nobody knows: retry
    │   └── Throttled  asked to wait: retry after `retry_after` seconds
    ├── QuotaExceeded  the store or disk is full: a person must act
    ├── Denied         credentials or permissions: a person must act
    ├── BadAddress     the address cannot be a store (unknown scheme, a mounted Drive, an SDK not installed)
    ├── TooLong        the object is longer than the caller allows: treat its content as invalid
    ├── Corrupt        the bytes are not those promised, read in full twice: evidence of damage
    ├── LostEntry      a log slot is empty although something proves that it was used: stop, write nothing
    └── OutcomeUnknown an append was sent and nobody knows whether it landed: never assume either
    """

    here = False
    """Whether it was this machine's own disk that refused, and not the store."""


class Missing(StoreError):
    """The Ref names nothing."""


class Exists(StoreError):
    """put_if_absent or put_new found the name taken."""


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


class TooLong(StoreError):
    """The object is longer than the limit given; nothing was read."""


class Corrupt(StoreError):
    """The stored bytes are not those promised."""


class LostEntry(StoreError):
    """The log has lost an entry."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq
        """The empty slot that must have been used."""


class OutcomeUnknown(StoreError):
    """An append was sent; whether it landed could not be found out."""


@dataclass(frozen=True)
class BlockHash:
    """The SHA-256 over the SHA-256 of every block of `block` bytes (the last may be shorter), one after another.

    What servers compute that take a file in parts: Dropbox's content hash (4 MiB blocks), S3's composite checksum.
    """

    block: int
    sha256: str
    """Hex digest."""


@dataclass(frozen=True)
class Stat:
    """What a store tells of one object. `modified` is the store's clock in unix seconds."""

    ref: Ref
    name: str
    size: int
    modified: float
    sha256: str | None = None
    """Hex digest if the store itself computed one over the whole object, else None."""
    block_hash: BlockHash | None = None
    """The same by blocks, else None."""
    hash_tested: bool = True
    """Whether the server is known to refuse an upload with a wrong hash. If not, its hash proves no upload; it can
    still show that a read was damaged on the way."""


@runtime_checkable
class Store(Protocol):
    """Bytes under names, on storage shared by people who trust nothing else of each other.

    Guarantees every backend gives, checked by the one contract suite:

    1. *Atomic*: a reader sees all of a write or none of it.
    2. *Read your writes*: a point read by Ref sees every write that has returned.
    3. *Put-if-absent*: where `unique_names`, of several `put_if_absent` to one name exactly one succeeds. `put_new`
       never replaces what was there when it was called.

    What no backend promises: that `list` is complete or fresh (it may hide, it never invents), or that
    `Exists` means somebody else wrote it. All methods raise only StoreError subclasses.
    Names are relative, '/'-separated, lower-case ASCII parts matching [a-z0-9][a-z0-9._-]*; all else is ValueError.
    A Ref that this store cannot have given out is Denied. A name that is also the folder of other names, or on Dropbox
    ever was, may be Denied.
    """

    @property
    def address(self) -> str:
        """Printable address without secrets."""
        ...

    @property
    def unique_names(self) -> bool:
        """Whether names are unique, so that put_if_absent and ref() work for every name (not on Drive)."""
        ...

    @property
    def clock_is_local(self) -> bool:
        """Whether the last now() was this machine's clock, because the store could not be asked without writing."""
        ...

    def put(self, name: str, data: bytes | Path) -> Ref:
        """Store bytes, or a file's content, durably under `name`, replacing what was there. Atomic."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        """Store bytes only if `name` is free; raises Exists if it is taken. Never retried by itself."""
        ...

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        """As `put`, but replaces nothing. Raises Exists if `name` is taken, perhaps by our own re-send: compare.

        Where names are not unique the result is a new object, and Exists is never raised.
        """
        ...

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        """The whole object. With `limit`, an object longer than that many bytes raises TooLong unread."""
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
        """The Ref of a name, without asking the store. Where names are not unique: of one that was only ever written by
        put_if_absent; asks, and raises Missing."""
        ...


class Creates(Protocol):
    """A store on which what finds an object is known before it exists, and is no name (Drive)."""

    def reserve(self, count: int) -> list[Ref]:
        """Fresh Refs, for objects that do not exist yet."""
        ...

    def claim(self, name: str, ref: Ref) -> None:
        """What this client puts under a name from now on is to be found at this Ref, which was reserved."""
        ...

    def create(self, ref: Ref, name: str, data: bytes) -> Ref:
        """Store bytes at a Ref that the store has reserved; raises Exists if it is used. Never retried by itself."""
        ...


_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
_LONGEST_NAME, _LONGEST_PART = 900, 200


def check_name(name: str) -> str:
    """The name itself if it may be stored under; ValueError otherwise. No valid name can leave the store."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME or max(map(len, name.split("/"))) > _LONGEST_PART:
        raise ValueError(
            f"not a valid object name: {name[:200]!r} (lower-case a-z, 0-9, '.', '_', '-', parts split by '/')"
        )
    return name


def check_prefix(prefix: str) -> str:
    """The prefix itself if names can start with it: empty, a name, or a name and a slash; ValueError otherwise."""
    if prefix:
        check_name(prefix.removesuffix("/"))
    return prefix


def check_ref(ref: Ref, address: str) -> str:
    """The name a Ref stands for, on stores whose Refs are names; Denied if it cannot be one of theirs."""
    try:
        return check_name(ref)
    except ValueError as error:
        raise Denied(f"{address}: refused a reference that no object of this store can have: {error}") from error
