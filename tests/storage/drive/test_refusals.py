"""What only Drive refuses: folders that are none, accounts without room, names that find nothing."""

from __future__ import annotations

import pytest

from relay.torch.launch import reserved_port
from storage.base import (
    BadAddress,
    Denied,
    Missing,
    QuotaExceeded,
    Unavailable,
    make_store,
    open_store,
)
from storage.drive import client as client_module
from storage.guides import GUIDES
from storage.log import Log, Won
from storage.selftest import self_test
from tests.facts import raising
from tests.storage.drive.handle import Fake, Person
from tests.storage.drive.stores import Drive, connect, holding
from tests.storage.fakes.redirect import DRIVE


def test_wrong_folders_are_told_apart(fake: Fake, drive: Drive) -> None:
    stranger, store = fake.person(), drive.store()
    folder, first = drive.address.removeprefix("drive://").split("/")
    with raising(BadAddress, drive.address):
        connect(stranger, drive.address).now()
    file = store.put("a", b"data")
    with raising(BadAddress, file, "`init`"):
        connect(drive.person, f"drive://{file}/{first}").now()
    body = {"name": "s", "mimeType": "application/vnd.google-apps.shortcut", "shortcutDetails": {"targetId": folder}}
    with drive.person.service() as sdk:
        shortcut = sdk.files().create(body=body, fields="id").execute()["id"]
    with raising(BadAddress, shortcut, folder):
        connect(drive.person, f"drive://{shortcut}/{first}").now()
    with raising(Denied, shortcut):
        store.stat(shortcut)
    fake.control("remove", file=folder, trash=True)
    with raising(BadAddress, drive.address, 30):
        connect(drive.person, drive.address).now()


def test_a_service_account_has_no_room_of_its_own(fake: Fake) -> None:
    robot = fake.person(service=True)
    with raising(QuotaExceeded, GUIDES["drive"]):
        Drive(robot).store().put("a", b"data")


def test_a_shared_drive_holds_a_store_and_deletes_into_its_bin_where_it_must(fake: Fake) -> None:
    ana = fake.person(("drive",))
    team = fake.drive("team", **{ana.name: "fileOrganizer"})
    drive = Drive(ana, parent=team, own=True)
    store = drive.store()
    log = Log(store, "runs/p/r/ledger/", sleep=lambda _: None)
    assert isinstance(log.append(0, b"genesis"), Won)
    ref = store.put("a", b"data")
    assert [stat.name for stat in store.list("a")] == ["a"]
    store.delete(ref)
    assert list(store.list("a")) == []
    with pytest.raises(Missing):
        store.stat(ref)
    self_test(store)


def test_files_of_others_with_the_same_name_are_no_danger(drive: Drive) -> None:
    a, b = drive.store(), drive.store()
    first, second = a.put("same", b"one"), b.put("same", b"two")
    assert first != second and a.get(first) == b"one" and a.get(second) == b"two"
    assert [stat.name for stat in a.list("same")] == ["same", "same"]
    assert a.put("same", b"three") == first


def test_no_network_is_one_clear_error(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    store = drive.store()
    with reserved_port() as port:
        monkeypatch.setenv(DRIVE, str(port))
        for client in (store, drive.store()):
            with raising(Unavailable, drive.address):
                client.now()


def test_a_server_that_never_answers_is_given_up(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "TIMEOUT_S", 0.3)
    store = drive.store()
    drive.person.fault("slow", route="v3.files", seconds=2)
    with raising(Unavailable, drive.address):
        store.now()


def test_addresses(fake: Fake, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in holding(person).items():
        monkeypatch.setenv(name, value)
    for wrong in ("drive://", "drive://folder", "drive://My%20Drive/x", "drive:///" + "a" * 20, "drive://" + "a" * 20):
        with raising(BadAddress, "FOLDER_ID/FIRST_ID"):
            open_store(wrong)
    with raising(BadAddress, "drive://new/my folder", "drive://new/ID"):
        make_store("drive://new/my folder")
    assert make_store("s3://bucket") == "s3://bucket" and make_store("drive://a/b") == "drive://a/b"
    address = make_store("drive://new")
    inside = make_store(f"drive://new/{address.split('/')[2]}")
    store = open_store(inside)
    assert store.get(store.put("a", b"data")) == b"data" and store.address == inside


def test_a_reader_asks_for_nothing_that_could_change_something(drive: Drive) -> None:
    ref = drive.store().put("a", b"data")
    reader = drive.store(read_only=True)
    before = drive.person.look()["counts"]
    for write in (lambda: reader.create(ref, "b", b""), lambda: reader.replace(ref, b"", "tag")):
        with raising(Denied):
            write()
    assert reader.get(ref) == b"data" and not reader.clock_is_local and reader.now() > 0
    with pytest.raises(Missing):
        reader.ref("never-bound")
    after = drive.person.look()["counts"]
    assert not [
        route for route in after if after[route] != before.get(route) and "get" not in route and "token" not in route
    ]
