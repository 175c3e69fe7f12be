"""Whatever Drive, the network or a proxy answers is told as what it is, with what to do, and without a secret."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from storage import drive as package
from storage.base import (
    BadAddress,
    Denied,
    Missing,
    QuotaExceeded,
    StoreError,
    Throttled,
    Unavailable,
    make_store,
    open_store,
)
from storage.drive import client as client_module
from storage.drive.errors import NotAllowed
from storage.drive.store import DriveStore
from storage.log import Log, Won
from storage.retry import RetryStore
from storage.selftest import self_test
from tests.storage.drive.handle import Fake, Person
from tests.storage.drive.redirect import PORT
from tests.storage.drive.stores import Drive, connect, holding

Verb = Callable[[DriveStore, Any], object]
VERBS: dict[str, Verb] = {
    "put": lambda store, ref: store.put("new", b"new"),
    "get": lambda store, ref: store.get(ref),
    "read_range": lambda store, ref: store.read_range(ref, 0, 2),
    "stat": lambda store, ref: store.stat(ref),
    "delete": lambda store, ref: store.delete(ref),
    "list": lambda store, ref: list(store.list("")),
    "now": lambda store, ref: store.now(),
}
ANSWERS: list[tuple[dict[str, Any], type[StoreError], str]] = [
    ({"kind": "429", "retry_after": 7}, Throttled, "asks to wait"),
    ({"kind": "userRateLimit", "retry_after": 7}, Throttled, "asks to wait"),
    ({"kind": "rateLimit", "retry_after": 7}, Throttled, "asks to wait"),
    ({"kind": "dailyLimit"}, QuotaExceeded, "used up its requests"),
    ({"kind": "500-before", "status": 503}, Unavailable, r"error of its own \(503\)"),
    ({"kind": "drop-before", "times": 9}, Unavailable, "Is the network up"),
    ({"kind": "html"}, Unavailable, "proxy or login|error of its own"),
    ({"kind": "forbidden"}, NotAllowed, "Ask its owner"),
    ({"kind": "no-scope"}, Denied, r"lacks the permission drive\.file"),
]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("fault", "expected", "advice"), ANSWERS, ids=[a[0]["kind"] for a in ANSWERS])
def test_what_any_verb_may_be_answered(
    drive: Drive, verb: str, fault: dict[str, Any], expected: type[StoreError], advice: str
) -> None:
    store = drive.store()
    ref = store.put("a", b"data")
    store.reserve(1)
    if (verb, fault["kind"]) == ("delete", "forbidden"):
        fault = fault | {"times": 2}  # who may not delete tries the bin
    drive.person.fault(route="v3.files", **fault)
    with pytest.raises(expected, match=advice) as caught:
        VERBS[verb](store, ref)
    assert type(caught.value) is expected
    assert drive.address in str(caught.value)
    if isinstance(caught.value, Throttled):
        assert caught.value.retry_after == 7
    drive.person.heal()
    VERBS[verb](store, ref)


def test_trouble_that_passes_is_waited_for(drive: Drive) -> None:
    waits: list[float] = []
    store = RetryStore(drive.store(), sleep=waits.append, jitter=lambda: 0.5)
    drive.person.fault("userRateLimit", route="v3.files", times=2, retry_after=9)
    drive.person.fault("500-after", route="v3.files.create", status=500)
    ref = store.put("a", b"data")
    assert store.get(ref) == b"data" and max(waits) >= 9
    assert [stat.name for stat in store.list("")] == ["a"]


def test_wrong_folders_are_told_apart(fake: Fake, drive: Drive) -> None:
    stranger, store = fake.person(), drive.store()
    folder, first = drive.address.removeprefix("drive://").split("/")
    with pytest.raises(BadAddress, match="sees no folder with that id"):
        connect(stranger, drive.address).now()
    file = store.put("a", b"data")
    with pytest.raises(BadAddress, match="names a file, not a folder"):
        connect(drive.person, f"drive://{file}/{first}").now()
    body = {"name": "s", "mimeType": "application/vnd.google-apps.shortcut", "shortcutDetails": {"targetId": folder}}
    with drive.person.service() as sdk:
        shortcut = sdk.files().create(body=body, fields="id").execute()["id"]
    with pytest.raises(BadAddress, match=rf"names a shortcut.*\({folder}\)|shortcut, not a folder.*{folder}"):
        connect(drive.person, f"drive://{shortcut}/{first}").now()
    with pytest.raises(Denied, match="not a file of bytes"):
        store.stat(shortcut)
    fake.control("remove", file=folder, trash=True)
    with pytest.raises(BadAddress, match="in the bin"):
        connect(drive.person, drive.address).now()


def test_a_full_drive_says_how_full_and_stores_nothing_more(drive: Drive) -> None:
    store = drive.store()
    used = store.quota()[0]
    drive.person.change(quota=used + 1000)
    with pytest.raises(QuotaExceeded, match=r"bin counts too\)\. Make room .*GB are used"):
        store.put("a", b"x" * 5000)
    assert store.quota() == (used, used + 1000)
    assert store.put("b", b"small")


def test_a_service_account_has_no_room_of_its_own(fake: Fake) -> None:
    robot = fake.person(service=True)
    with pytest.raises(QuotaExceeded, match=r"service account owns no storage\. Use a person's token"):
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
    with socket.socket() as listening:  # bound, never accepting
        listening.bind(("127.0.0.1", 0))
        monkeypatch.setenv(PORT, str(listening.getsockname()[1]))
        for client in (store, drive.store()):
            with pytest.raises(Unavailable, match="Is the network up"):
                client.now()


def test_a_server_that_never_answers_is_given_up(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "TIMEOUT_S", 0.3)
    store = drive.store()
    drive.person.fault("slow", route="v3.files", seconds=2)
    with pytest.raises(Unavailable, match="no answer"):
        store.now()


def test_without_the_packages_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    for use in (lambda: open_store("drive://" + "f" * 20 + "/" + "a" * 20), lambda: make_store("drive://new")):
        with pytest.raises(BadAddress, match=r"pip install 'trm-relay\[drive\]'"):
            use()


def test_addresses(fake: Fake, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in holding(person).items():
        monkeypatch.setenv(name, value)
    for wrong in ("drive://", "drive://folder", "drive://My%20Drive/x", "drive:///" + "a" * 20, "drive://" + "a" * 20):
        with pytest.raises(BadAddress, match="FOLDER_ID/FIRST_ID"):
            open_store(wrong)
    with pytest.raises(BadAddress, match="folder to put it in"):
        make_store("drive://new/my folder")
    assert make_store("s3://bucket") == "s3://bucket" and make_store("drive://a/b") == "drive://a/b"
    address = make_store("drive://new")
    inside = make_store(f"drive://new/{address.split('/')[2]}")
    store = open_store(inside)
    assert store.get(store.put("a", b"data")) == b"data" and store.address == inside


def test_a_reader_writes_nothing(drive: Drive) -> None:
    ref = drive.store().put("a", b"data")
    reader = drive.store(read_only=True)
    before = drive.person.look()["counts"]
    for write in (
        lambda: reader.put("b", b""),
        lambda: reader.put_if_absent("b", b""),
        lambda: reader.create(ref, "b", b""),
        lambda: reader.delete(ref),
        lambda: reader.replace(ref, b"", "tag"),
    ):
        with pytest.raises(Denied, match="reading only"):
            write()
    assert reader.get(ref) == b"data" and not reader.clock_is_local and reader.now() > 0
    with pytest.raises(Missing):
        reader.ref("never-bound")
    after = drive.person.look()["counts"]
    assert not [
        route for route in after if after[route] != before.get(route) and "get" not in route and "token" not in route
    ]
