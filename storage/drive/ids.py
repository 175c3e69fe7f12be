"""Ids that Drive generates before there is a file; asks for many at once, hands each out once."""

from __future__ import annotations

import threading

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
