"""What only some stores can do: tell how much room there is, and give up what killed uploads left on a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from storage.contract import Store
from storage.wrapper import innermost


@runtime_checkable
class HasQuota(Protocol):
    """A store whose service tells what is used and what there is."""

    def quota(self) -> tuple[int, int | None]:
        """Bytes used, and bytes there are in all (None: no limit is told). Raises StoreError."""
        ...


def free(store: Store) -> int | None:
    """Bytes that may still be stored, None where nobody tells. Raises StoreError, Denied if it may not be asked."""
    inner = innermost(store)
    if not isinstance(inner, HasQuota):
        return None
    used, total = inner.quota()
    return None if total is None else max(0, total - used)


@runtime_checkable
class KeepsParts(Protocol):
    """A store whose server keeps the parts of an unfinished upload, unlisted, until somebody gives it up."""

    def unfinished(self, prefix: str) -> Iterator[tuple[str, float]]:
        """Names of files that a server holds parts of, and when each was begun, by the store's clock."""
        ...

    def give_up(self, name: str) -> None:
        """Have the server forget the parts of every unfinished upload of a name."""
        ...


def unfinished(store: Store, prefix: str) -> list[str]:
    """Names under the prefix that a server holds parts of; none on other stores. Raises StoreError."""
    inner = innermost(store)
    return sorted({name for name, _ in inner.unfinished(prefix)}) if isinstance(inner, KeepsParts) else []


def give_up(store: Store, name: str) -> None:
    """Forget the parts of a name; nothing on other stores. Raises StoreError."""
    inner = innermost(store)
    if isinstance(inner, KeepsParts):
        inner.give_up(name)
