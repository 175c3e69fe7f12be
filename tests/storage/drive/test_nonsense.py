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
from storage.drive.place import DriveAddress
from storage.drive.store import DriveStore
from storage.log import Log, Won
from tests.facts import raising
from tests.storage.drive.handle import Person
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


def test_a_part_that_is_shorter_than_its_headers_say_is_asked_for_again(drive: Drive) -> None:
    """Else a good entry is damaged, and one's own that was sent without an answer is another's."""
    log = Log(drive.store(), "runs/p/r/ledger/", sleep=lambda _: None)
    log.append(0, b"genesis")
    drive.person.fault("500-after", route="v3.files.create")
    drive.person.fault("short", route="v3.files.get/media", times=2)
    assert isinstance(log.append(1, b"entry one " * 500), Won)
    store = drive.store()
    ref = store.put("a", b"data")
    drive.person.fault("short", route="v3.files.get/media")
    with raising(Unavailable, 4, 2):
        store.read_range(ref, 0, 4)


@pytest.mark.parametrize("route", ["v3.files.generateIds", "v3.files.create", "v3.about", "multipart"])
@pytest.mark.parametrize("kind", ["500-after", "429", "drop-after"])
def test_a_store_is_made_whatever_reply_gets_lost(
    person: Person, monkeypatch: pytest.MonkeyPatch, route: str, kind: str
) -> None:
    monkeypatch.setattr("storage.retry._FIRST_WAIT", 0.0001)
    monkeypatch.setattr("storage.log._FIRST_WAIT", 0.0001)
    person.fault(kind, route=route, skip=route.endswith("Ids"), retry_after=0)
    monkeypatch.setattr("storage.drive.errors.LIMITED_S", 0.0)
    assert not Drive(person).store().directory.table().names
    assert person.look()["met"] and len(person.look()["files"]) == 2, "one folder, one slot"


@pytest.mark.parametrize("key", ["SECRET", "-----BEGIN PRIVATE KEY-----\nU0VDUkVU\n-----END PRIVATE KEY-----\n"])
def test_a_key_that_is_none_is_named_and_not_shown(drive: Drive, key: str) -> None:
    info = {"type": "service_account", "client_email": "a@b", "private_key": key}
    found = credentials({"RELAY_DRIVE_TOKEN": json.dumps(info)})
    store = DriveStore(DriveAddress.parse(drive.address), client_module.DriveClient(found, drive.address))
    with raising(Denied, "RELAY_DRIVE_TOKEN") as caught:
        store.now()
    assert key not in "".join(traceback.format_exception(caught.value))
