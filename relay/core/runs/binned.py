"""A run's files in the bin of its stores: found for every check, and taken out by each session that may (Drive)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from relay.core.names import Names
from storage.base import Stat, Store, StoreError
from storage.capabilities import binned, take_out

_OF_RUNS = ("runs/", "checkpoints/")
"""Beginnings of the names that belong to one run; all others belong to the store."""


def in_bin(stores: Sequence[Store], names: Names) -> list[Stat]:
    """Files in the bin that belong to the run or to the whole store; other runs' may be there on purpose.

    By a listing, which may hide some. Raises StoreError.
    """
    return [stat for store in stores for stat in binned(store) if _concerns(stat.name, names)]


def take_out_of_bin(stores: Sequence[Store], names: Names) -> int:
    """Take these files out where this client may; returns how many came out. A failure ends nothing: they still are
    read, and every check reports them."""
    out = 0
    for store in stores:
        with suppress(StoreError):
            for stat in binned(store):
                if _concerns(stat.name, names):
                    with suppress(StoreError):
                        take_out(store, stat.ref)
                        out += 1
    return out


def _concerns(name: str, names: Names) -> bool:
    return not name.startswith(_OF_RUNS) or name.startswith((names.home, names.checkpoints))
