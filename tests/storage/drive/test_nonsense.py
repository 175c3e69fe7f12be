"""Answers of a form that Drive's never have, and keys that are none, are told as such: no crash, no secret shown."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from storage.base import BadAddress, Denied, Unavailable
from storage.drive import client as client_module
from storage.drive.credentials import credentials
from storage.drive.place import Place
from storage.drive.store import DriveStore
from tests.storage.drive.stores import Drive

NONSENSE: list[dict[str, Any]] = [
    {},
    {"size": "1"},
    {"size": "x", "name": "a", "modifiedTime": "never"},
    {"files": [{"size": "1"}], "ids": ["/"]},
    {"user": None, "storageQuota": {"usage": "x"}, "files": None},
    {"size": "1", "trashed": True, "properties": None},
]


@pytest.mark.parametrize("answer", NONSENSE)
def test_an_answer_that_lacks_something_is_not_drives(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    store = drive.store()
    ref = store.put("a", b"data")
    monkeypatch.setattr(client_module, "document", lambda said: answer)
    monkeypatch.setattr("storage.retry._FIRST_WAIT", 0.0001)
    ask: Callable[[], object]
    for ask in (store.account, lambda: store.stat(ref), lambda: store.tag(ref), lambda: store.put("b", b"1")):
        with pytest.raises(Unavailable):
            ask()
    for ask in (store.quota, lambda: list(store.list("")), store.now):
        with suppress(Unavailable, BadAddress):
            ask()


@pytest.mark.parametrize("key", ["SECRET", "-----BEGIN PRIVATE KEY-----\nU0VDUkVU\n-----END PRIVATE KEY-----\n"])
def test_a_key_that_is_none_is_named_and_not_shown(drive: Drive, key: str) -> None:
    info = {"type": "service_account", "client_email": "a@b", "private_key": key}
    found = credentials({"RELAY_DRIVE_TOKEN": json.dumps(info)})
    store = DriveStore(Place.parse(drive.address), client_module.Client(found, drive.address))
    with pytest.raises(Denied, match="RELAY_DRIVE_TOKEN holds a key that is none") as caught:
        store.now()
    assert key not in "".join(traceback.format_exception(caught.value))
