"""Decides whether wrong bytes are damage in the store or a fault of the connection (P7)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.contract import BlockHash, Missing, Ref, Stat, Store, Unavailable
from storage.digests import BlockHasher
from storage.wrapper import fresh


@dataclass(frozen=True)
class Arrived:
    """The bytes of one read of an object: all of it, or one more than the reader accepts."""

    size: int
    sha256: str
    blocks: BlockHash | None = None
    """Hashes by blocks, if the reader was asked for them."""
    data: bytes = field(default=b"", repr=False, compare=False)
    """The bytes, if the reader keeps them in memory."""

    @staticmethod
    def of(data: bytes, block: int | None) -> Arrived:
        hasher = BlockHasher(block) if block else None
        if hasher:
            hasher.update(data)
        return Arrived(len(data), hashlib.sha256(data).hexdigest(), hasher.hash() if hasher else None, data)


Read = Callable[[Store, int | None], Arrived]
"""Reads the whole object with a client of the store, and hashes it also by blocks of this size, if one is given."""


def settled(store: Store, ref: Ref, read: Read, right: Callable[[Arrived], bool], most: int) -> Arrived:
    """The stored bytes at a Ref: one read if it brings the right bytes, otherwise bytes that a second read confirms.

    The second read uses new connections, and the store is asked once for its own size and hash of the object. Bytes
    that are returned although they are not `right` prove damage: both reads brought them, and the store does not
    contradict them. `most` is how many bytes the reader accepts.

    Raises Unavailable if the reads or the store contradict each other, which is the connection's fault; Missing
    after two connections reported it; and the store's errors.
    """
    try:
        first = read(store, None)
        return first if right(first) else _second(fresh(store), ref, read, right, most, first)
    except Missing as error:
        fresh(store).stat(ref)
        raise _bad_link(store, f"{ref} was reported as missing, and exists") from error


def _second(store: Store, ref: Ref, read: Read, right: Callable[[Arrived], bool], most: int, first: Arrived) -> Arrived:
    stat = store.stat(ref)
    second = read(store, stat.block_hash.block if stat.block_hash else None)
    if not right(second) and (why := _contradiction(stat, first, second, most)):
        raise _bad_link(store, f"{ref} {why}")
    return second


def _contradiction(stat: Stat, first: Arrived, second: Arrived, most: int) -> str:
    """The evidence that these are not the stored bytes; '' if there is none."""
    if (first.size, first.sha256) != (second.size, second.sha256):
        return "arrived as other bytes each time it was read"
    if second.size > most and stat.size > most:
        return ""  # not read to its end: too long, and the store confirms it
    if stat.size != second.size:
        return f"arrived twice with {second.size:,} bytes, and the store reports {stat.size:,}"
    if stat.sha256 not in (None, second.sha256) or (stat.block_hash and stat.block_hash != second.blocks):
        return "arrived twice with wrong bytes, and the store's own hash differs"
    return ""


def _bad_link(store: Store, what: str) -> Unavailable:
    return Unavailable(
        f"the connection to {store.address} is bad: {what}. This proves no damage in the store, and nothing was "
        "changed. Use another network, without a proxy, then run the same command again."
    )
