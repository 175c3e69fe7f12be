"""The same store on connections of its own, for a reading that owes nothing to an earlier one."""

from __future__ import annotations

from storage.contract import Store


def fresh(store: Store) -> Store:
    """The store with connections and caches of its own; a store that has none returns itself."""
    return store
