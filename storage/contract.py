"""The Store interface, its guarantees and its errors; does not know leases, checkpoints or training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NewType, Protocol, runtime_checkable

Ref = NewType("Ref", str)
"""Finds stored bytes again: the key on local, memory, S3 and Dropbox; the file id on Drive."""


IDENTITY = "trm-relay.store.json"
"""The object with a store's identity, which the relay writes when it begins a store (P3)."""


class StoreError(Exception):
    """Root of all errors of a store. A new subclass exists only if the caller would act differently.

    StoreError
        ├── Missing        the Ref names no object (shown by a point read; never a guess, never a denial)
    ├── Exists         put_if_absent or put_new found the name taken (perhaps by our own re-send: read it)
        ├── Unavailable    no answer, or an unknown outcome: retry
        │   └── Throttled  the service asked to wait: retry after `retry_after` seconds
    ├── QuotaExceeded  the store or disk is full: a person must act
    ├── Denied         credentials or permissions: a person must act
    │   └── Expired    the service no longer accepts the credentials: new ones may be where they came from
    ├── BadAddress     the address cannot be a store (unknown scheme, a mounted Drive, an SDK not installed)
    │   └── BadSetting     a setting outside the address cannot be used
    ├── TooLong        the object is longer than the caller allows: treat its content as invalid
    ├── Corrupt        the bytes are not those promised, read in full twice: evidence of damage
        ├── LostEntry      a log slot is empty although there is proof that it was used: stop, write nothing
        └── OutcomeUnknown an append was sent and may or may not have landed: never assume either
    """

    here = False
    """Whether this machine's own disk refused, not the store."""


class Missing(StoreError):
    """The Ref names no object."""


class Exists(StoreError):
    """put_if_absent or put_new found the name taken."""


class Unavailable(StoreError):
    """No answer or an unknown outcome; the caller may retry."""


class Throttled(Unavailable):
    """The service asks to wait."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds to wait before the next attempt."""


class QuotaExceeded(StoreError):
    """No space left; a person must act."""


class Denied(StoreError):
    """Refused by permissions or credentials; a person must act. Never means Missing."""


class Expired(Denied):
    """The service no longer accepts the credentials. New ones may be where they came from; they are read once."""


class BadAddress(StoreError):
    """The address cannot be opened as a store."""


class BadSetting(BadAddress):
    """A setting outside the address, of the environment or of an SDK's own files, cannot be used."""


class TooLong(StoreError):
    """The object is longer than the given limit; nothing was read."""


class Corrupt(StoreError):
    """The stored bytes are not those promised."""


class LostEntry(StoreError):
    """The log has lost an entry."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq
        """The empty slot that must have been used."""


class OutcomeUnknown(StoreError):
    """An append was sent, and whether it landed is unknown."""


@dataclass(frozen=True)
class BlockHash:
    """The SHA-256 over the concatenated SHA-256 of every block of `block` bytes (the last may be shorter).

    Servers that take a file in parts compute it: Dropbox's content hash (4 MiB blocks), S3's composite checksum.
    """

    block: int
    sha256: str
    """Hex digest."""


@dataclass(frozen=True)
class Stat:
    """A store's metadata of one object. `modified` is the store's clock in unix seconds."""

    ref: Ref
    name: str
    size: int
    modified: float
    sha256: str | None = None
    """Hex digest over the whole object if the store computed one, otherwise None."""
    block_hash: BlockHash | None = None
    """The same by blocks, otherwise None."""
    hash_tested: bool = True
    """Whether the server is known to refuse an upload with a wrong hash. Otherwise its hash does not prove an upload;
    it can still show that a read was damaged on the way."""


@runtime_checkable
class Store(Protocol):
    """Bytes under names, on storage shared by people who do not trust each other's clients.

        Guarantees of every backend, checked by one contract suite:

    1. *Atomic*: a reader sees all of a write or none of it.
    2. *Read your writes*: a point read by Ref sees every write that has returned.
    3. *Put-if-absent*: where `unique_names`, of several `put_if_absent` to one name exactly one succeeds. `put_new`
              never replaces an object that existed when it was called.

    No backend promises that `list` is complete or fresh (it may hide, it never invents), or that `Exists` means
    another writer. All methods raise only StoreError subclasses.
    Names are relative: '/'-separated lower-case ASCII parts matching `[a-z0-9][a-z0-9._-]*`; others are a ValueError.
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
        """Whether the last now() was this machine's clock, because the store needs a write to show its own."""
        ...

    def put(self, name: str, data: bytes | Path) -> Ref:
        """Store bytes, or a file's content, durably under `name`, replacing an existing object. Atomic."""
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
        """Remove the object; succeeds if it is missing."""
        ...

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        """Objects whose name starts with `prefix` (and sorts after `after`), in name order. Advisory."""
        ...

    def now(self) -> float:
        """The store's clock, unix seconds. Writes at most a probe object; read-only stores: see `clock_is_local`."""
        ...

    def ref(self, name: str) -> Ref:
        """The Ref of a name, without a request. Where names are not unique, only for names written by put_if_absent;
        then sends a request, and raises Missing."""
        ...


class Creates(Protocol):
    """A store with Refs that are reserved before the object exists and are not names (Drive)."""

    def reserve(self, count: int) -> list[Ref]:
        """Fresh Refs, for objects that do not exist yet."""
        ...

    def claim(self, name: str, ref: Ref) -> None:
        """From now on, this client's object of this name is at this Ref, which was reserved."""
        ...

    def create(self, ref: Ref, name: str, data: bytes) -> Ref:
        """Store bytes at a Ref that the store has reserved; raises Exists if it is used. Never retried by itself."""
        ...


_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
_LONGEST_NAME, _LONGEST_PART = 900, 200


def check_name(name: str) -> str:
    """The name itself if it is valid; ValueError otherwise. No valid name can leave the store."""
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
    """The name of a Ref, on stores whose Refs are names; Denied if it cannot be one of theirs."""
    try:
        return check_name(ref)
    except ValueError as error:
        raise Denied(f"{address}: refused an invalid reference: {error}") from error
