"""Ids that Drive generates before a file exists, each used once, and the map from our names to ids."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from enum import Enum

from storage.contract import Ref, Unavailable
from storage.drive.client import DriveClient
from storage.drive.place import ID
from storage.retry import patiently

BATCH = 20
_ATTEMPTS = 5


class Ids:
    """A small stock of ids. An unused id costs nothing, so a request without an answer is repeated."""

    def __init__(self, client: DriveClient) -> None:
        self._client = client
        self._stock: list[Ref] = []
        self._lock = threading.Lock()

    def one(self) -> Ref:
        """A fresh id. Raises StoreError."""
        with self._lock:
            if not self._stock:
                self._stock = self.many(BATCH)
            return self._stock.pop()

    def many(self, count: int) -> list[Ref]:
        """Fresh ids, at most 1000 in one request (Google's generateIds). Raises StoreError."""
        return patiently(lambda: self._ask(count), sleep=time.sleep, jitter=random.random, attempts=_ATTEMPTS)

    def _ask(self, count: int) -> list[Ref]:
        answer = self._client.ask(
            "asking for ids", lambda drive: drive.files().generateIds(count=count, space="drive", type="files")
        )
        ids = [str(found) for found in answer.get("ids", [])]
        if len(set(ids)) != count or not all(ID.fullmatch(found) for found in ids):
            raise Unavailable(f"{self._client.address}: Google was asked for {count} ids and gave {len(set(ids))}.")
        return [Ref(found) for found in ids]


class There(Enum):
    """Whether a file exists at an id."""

    NO = "not created yet"
    YES = "created"
    PERHAPS = "perhaps created, by any client"


@dataclass(frozen=True)
class Spot:
    """The id of a name, and whether its file exists."""

    ref: Ref
    there: There


class Spots:
    """Each name's spot; safe for any number of threads."""

    def __init__(self) -> None:
        self._spots: dict[str, Spot] = {}
        self._claimed: dict[str, Ref] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Spot | None:
        """The spot of a name; None if it has none."""
        with self._lock:
            return self._spots.get(name)

    def set(self, name: str, ref: Ref, there: There) -> Spot:
        """Set the spot of a name."""
        with self._lock:
            spot = self._spots[name] = Spot(ref, there)
        return spot

    def claim(self, name: str, ref: Ref) -> None:
        """Use this id, whether or not a file exists there; not again once that file was deleted for ever."""
        with self._lock:
            if self._claimed.get(name) != ref:
                self._claimed[name], self._spots[name] = ref, Spot(ref, There.PERHAPS)

    def forget(self, name: str) -> None:
        """Give the name a fresh id next time."""
        with self._lock:
            self._spots.pop(name, None)

    def deleted(self, ref: Ref) -> None:
        """Remove the id from every name: Drive gives an id once."""
        with self._lock:
            self._spots = {name: spot for name, spot in self._spots.items() if spot.ref != ref}
