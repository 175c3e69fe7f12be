"""Ids that Drive generates before there is a file, each handed out once, and which name of ours goes to which id."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum

from storage.contract import Ref, Unavailable
from storage.drive.client import Client
from storage.drive.place import ID

BATCH = 20


class Ids:
    """A small stock. An id that is never used costs nobody anything."""

    def __init__(self, client: Client) -> None:
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
        """Fresh ids, of which Google generates at most 1000 in one request (generateIds). Raises StoreError."""
        answer = self._client.ask(
            "asking for ids", lambda drive: drive.files().generateIds(count=count, space="drive", type="files")
        )
        ids = [str(found) for found in answer.get("ids", [])]
        if len(set(ids)) != count or not all(ID.fullmatch(found) for found in ids):
            raise Unavailable(f"{self._client.address}: Google was asked for {count} ids and gave {len(set(ids))}.")
        return [Ref(found) for found in ids]


class There(Enum):
    """What is known of a file at an id."""

    NO = "not created yet"
    YES = "created"
    PERHAPS = "perhaps created, by somebody"


@dataclass(frozen=True)
class Spot:
    """An id that a name goes to."""

    ref: Ref
    there: There


class Spots:
    """A name's spot; any number of threads may ask."""

    def __init__(self) -> None:
        self._spots: dict[str, Spot] = {}
        self._claimed: dict[str, Ref] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Spot | None:
        """Where the name goes, if anywhere."""
        with self._lock:
            return self._spots.get(name)

    def set(self, name: str, ref: Ref, there: There) -> Spot:
        """It goes there from now on."""
        with self._lock:
            spot = self._spots[name] = Spot(ref, there)
        return spot

    def claim(self, name: str, ref: Ref) -> None:
        """It goes there, whether or not a file is there by now; not again once that file is found deleted for ever."""
        with self._lock:
            if self._claimed.get(name) != ref:
                self._claimed[name], self._spots[name] = ref, Spot(ref, There.PERHAPS)

    def forget(self, name: str) -> None:
        """It goes to a fresh id next time."""
        with self._lock:
            self._spots.pop(name, None)

    def deleted(self, ref: Ref) -> None:
        """No name goes there any more: Drive gives an id once."""
        with self._lock:
            self._spots = {name: spot for name, spot in self._spots.items() if spot.ref != ref}
