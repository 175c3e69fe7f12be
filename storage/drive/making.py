"""A new store on Drive: its folder and the first slot of its directory; knows nothing of runs."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from functools import partial
from typing import Any

from storage.contract import Exists, StoreError
from storage.drive.client import Client
from storage.drive.directory import Table
from storage.drive.ids import Ids
from storage.drive.place import Place
from storage.drive.store import DriveStore
from storage.retry import patiently

NAME = "trm-relay"
_FOLDER = "application/vnd.google-apps.folder"


def make(client: Client, parent: str) -> DriveStore:
    """A store in a new folder inside `parent` ('root' is My Drive). Raises StoreError; then no folder stays."""
    patient = partial(patiently, sleep=time.sleep, jitter=random.random, attempts=5)
    folder, first = patient(lambda: Ids(client).many(2))
    body = {"id": folder, "name": NAME, "mimeType": _FOLDER, "parents": [parent]}

    def create(drive: Any) -> Any:
        return drive.files().create(body=body, fields="id", supportsAllDrives=True)

    store = DriveStore(Place(folder, first), client)
    try:
        with suppress(Exists):  # our own, whose first reply was lost
            patient(lambda: client.ask("making the folder", create))
        me, spare = store.account(), patient(lambda: store.reserve(1)[0])
        store.directory.begin(Table(members={me: "began"}, spare=spare, by=me))
    except StoreError:
        with suppress(StoreError):  # nobody has been told of it
            patient(lambda: store.delete(folder))
        raise
    return store
