"""The log of tables that maps a store's few fixed names to ids; does not read the files there."""

from __future__ import annotations

import json
import random
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from storage.contract import BadAddress, Corrupt, Creates, Missing, Ref, Store, StoreError, check_name
from storage.drive.place import ID
from storage.log import ENTRY_LIMIT, Log, Won
from storage.retry import RetryStore

PREFIX = "directory/"
OWN = (PREFIX, "directory.hint")
"""Names that no listing shows: they belong to the store, not to its user."""
WAYS = ("chain", "newest")
_RACES = 50
_FORMAT = 1


@dataclass(frozen=True)
class Table:
    """One entry of the directory."""

    names: dict[str, Ref] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    """Result of each Drive account's probe, by a digest of the account."""
    spare: Ref | None = None
    """Id for the next account's probe."""
    by: str | None = None
    """The account whose client requested `probe_id`."""
    way: str = "chain"
    """How logs go on: 'chain', or 'newest' from each log's next entry on."""

    def encode(self) -> bytes:
        """With a nonce, which makes the bytes unique to this intent."""
        said = {
            "format": _FORMAT, "nonce": secrets.token_hex(16), "names": self.names, "members": self.members,
            "spare": self.spare, "by": self.by, "way": self.way,
        }  # fmt: skip
        return json.dumps(said, sort_keys=True).encode()


def decode(data: bytes) -> Table | None:
    """A table from untrusted bytes; None unless every field is valid."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or set(said) != {"format", "nonce", "names", "members", "spare", "by", "way"}:
        return None
    if said["format"] != _FORMAT or not _texts(said["names"]) or not _texts(said["members"]):
        return None
    if not all(_is_name(name) and ID.fullmatch(ref) for name, ref in said["names"].items()):
        return None
    if any(not isinstance(said[key], str | None) for key in ("spare", "by")) or said["way"] not in WAYS:
        return None
    if said["spare"] is not None and not ID.fullmatch(said["spare"]):
        return None
    return Table(said["names"], said["members"], said["spare"], said["by"], said["way"])


class Reserves(Store, Creates, Protocol):
    """The part of the store that the directory uses."""


class Directory:
    """Binds each name once and for ever: if two clients bind it at the same time, one finds the other's id."""

    def __init__(self, store: Reserves) -> None:
        self._log = Log(RetryStore(store, sleep=time.sleep, jitter=random.random, attempts=5), PREFIX, sleep=time.sleep)
        self._reserve = store.reserve
        self._lock = threading.RLock()
        self._table = Table()
        self._tail = -1
        self._way = "chain"

    def begin(self, table: Table) -> None:
        """Write the first table, when the store is created."""
        self._log.append(0, self._about_to_write(table))

    @property
    def way(self) -> str:
        """How logs go on, by the table that was read last or is being written."""
        return self._way

    @property
    def own_way(self) -> str:
        """How the directory's own log goes on, as far as it was read."""
        return str(getattr(self._log.slots, "way", "chain"))

    def table(self) -> Table:
        """The newest table. Raises BadAddress if there is no directory."""
        with self._lock:
            hint = None if self._tail >= 0 else self._log.hint()
            tail = self._log.tail(self._tail if self._tail >= 0 else hint.seq if hint else None)
            if tail < 0:
                raise BadAddress(
                    f"{self._log.store.address} holds no store that this token can see. Check the address and that "
                    "the token is of the OAuth client that made the store: a narrow token sees nothing else."
                )
            if tail > self._tail:
                self._table, self._tail = self._newest(tail), tail
            self._way = self._table.way
            return self._table

    def find(self, name: str) -> Ref:
        """The id bound to a name. Raises Missing."""
        check_name(name)
        with self._lock:
            ref = self._table.names.get(name) or self.table().names.get(name)
        if ref is None:
            raise Missing(f"{self._log.store.address}: there is no {name}.")
        return ref

    def bind(self, name: str) -> Ref:
        """The id of a name, bound now if it has none. Raises the log's errors."""
        check_name(name)

        def bound(table: Table) -> Table | None:
            if name in table.names:
                return None
            return replace(table, names={**table.names, name: self._reserve(1)[0]})

        return self.change(bound).names[name]

    def change(self, change: Callable[[Table], Table | None]) -> Table:
        """The table after a change; `change(table)` gives the new one or None, and is called again on every rebase."""
        with self._lock:
            for _ in range(_RACES):
                new = change(self.table())
                if new is None:
                    return self._table
                seq, data = self._tail + 1, self._about_to_write(new)
                if isinstance(self._log.append(seq, data), Won):
                    self._table, self._tail = new, seq
                    with suppress(StoreError):  # the hint is only advice
                        self._log.publish_hint(seq, "0" * 64)
                    return new
        raise BadAddress(f"{self._log.store.address}: {_RACES} other writers came first in the directory. Run again.")

    def _about_to_write(self, table: Table) -> bytes:
        data = table.encode()
        if len(data) > ENTRY_LIMIT:  # some 1,500 names
            raise BadAddress(f"{self._log.store.address} is full: it takes no more runs. Use a new store.")
        self._way = table.way
        return data

    def _newest(self, tail: int) -> Table:
        """The newest entry that is a table; other entries were not written by this program."""
        for seq in range(tail, self._tail, -1):
            table = decode(self._log.peek(seq))
            if table is not None:
                return table
        if self._tail >= 0:
            return self._table
        raise Corrupt(f"{self._log.store.address}: no readable entry in the directory. Restore it from a backup.")


def _texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for pair in value.items() for v in pair)


def _is_name(name: str) -> bool:
    try:
        return bool(check_name(name))
    except ValueError:
        return False
