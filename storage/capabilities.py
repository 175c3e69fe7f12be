"""Abilities of some stores: report free space, and discard the parts that killed uploads left on a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from storage.contract import Store
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
