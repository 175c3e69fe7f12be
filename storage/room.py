"""How much room a store has, where its service tells; knows nothing of what will be stored."""

from __future__ import annotations

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
