"""Abilities of some stores: free space, knowledge of a server, parts of killed uploads, a bin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from storage.contract import Ref, Stat, Store
from storage.wrapper import innermost


@runtime_checkable
class HasQuota(Protocol):
    """A store whose service reports used and total space."""

    def quota(self) -> tuple[int, int | None]:
        """Bytes used, and bytes in all (None: no limit is reported). Raises StoreError."""
        ...


def free(store: Store) -> int | None:
    """Bytes that still fit, None if unknown. Raises StoreError, Denied if the question is not allowed."""
    inner = innermost(store)
    if not isinstance(inner, HasQuota):
        return None
    used, total = inner.quota()
    return None if total is None else max(0, total - used)


@dataclass(frozen=True)
class Doubt:
    """What is known of a store's promise that only one of several writers wins a name."""

    unknown: bool = False
    """Whether neither its documentation nor many races support the promise."""
    refused: str = ""
    """The name of a server that is known to break it."""


@runtime_checkable
class IsDoubtful(Protocol):
    """A store that may be on a server of any kind."""

    def doubt(self) -> Doubt:
        """Knowledge of its server. Raises StoreError."""
        ...


def doubt(store: Store) -> Doubt:
    """Knowledge of the store's server; no doubt on stores of one kind. Raises StoreError."""
    inner = innermost(store)
    return inner.doubt() if isinstance(inner, IsDoubtful) else Doubt()


@runtime_checkable
class KeepsParts(Protocol):
    """A store whose server keeps the parts of an unfinished upload, unlisted, until they are discarded."""

    def unfinished(self, prefix: str) -> Iterator[tuple[str, float]]:
        """Names of files of which a server holds parts, and when each upload began, by the store's clock."""
        ...

    def give_up(self, name: str) -> None:
        """Discard the parts of every unfinished upload of a name on the server."""
        ...


def unfinished(store: Store, prefix: str) -> list[str]:
    """Names under the prefix of which a server holds parts; none on other stores. Raises StoreError."""
    inner = innermost(store)
    return sorted({name for name, _ in inner.unfinished(prefix)}) if isinstance(inner, KeepsParts) else []


def give_up(store: Store, name: str) -> None:
    """Discard the parts of a name; does nothing on other stores. Raises StoreError."""
    inner = innermost(store)
    if isinstance(inner, KeepsParts):
        inner.give_up(name)


@runtime_checkable
class HasBin(Protocol):
    """A store whose service keeps what people delete for a while, and then removes it for ever."""

    def binned(self) -> Iterator[Stat]:
        """Files of the store in the bin, except those that the relay put there. Advisory."""
        ...

    def take_out(self, ref: Ref) -> None:
        """Take a file out of the bin. Raises StoreError, Denied if another account owns it."""
        ...


def binned(store: Store) -> list[Stat]:
    """The store's files that people put into the bin; none on other stores. Raises StoreError."""
    inner = innermost(store)
    return sorted(inner.binned(), key=lambda stat: stat.name) if isinstance(inner, HasBin) else []


def take_out(store: Store, ref: Ref) -> None:
    """Take a file out of the bin; does nothing on other stores. Raises StoreError."""
    inner = innermost(store)
    if isinstance(inner, HasBin):
        inner.take_out(ref)
