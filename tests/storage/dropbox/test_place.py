"""Addresses, credentials and folders: what opens which folder of whom, and what is refused before anything is asked."""

from __future__ import annotations

import pytest

from relay.app.redact import secrets_of
from storage.base import BadAddress, Denied, Unavailable, open_store
from storage.dropbox.credentials import credentials
from storage.dropbox.place import DropboxAddress
from storage.dropbox.store import DropboxStore
from storage.guides import GUIDES
from tests.facts import raising
from tests.storage.dropbox.handle import Fake, Person


@pytest.fixture
def known(person: Person, monkeypatch: pytest.MonkeyPatch) -> Person:
    """The environment holds this person's credentials."""
    for name, value in person.environ.items():
        monkeypatch.setenv(name, value)
    return person


@pytest.mark.parametrize(
    ("address", "path", "printed"),
    [
        ("dropbox:///", "/a", "dropbox:///"),
        ("dropbox:///relay", "/relay/a", "dropbox:///relay"),
        ("dropbox:///Relay/Deep%20er/", "/relay/deep er/a", "dropbox:///relay/deep%20er"),
        ("dropbox://ns:123", "/a", "dropbox://ns:123/"),
        ("dropbox://ns:123/relay", "/relay/a", "dropbox://ns:123/relay"),
    ],
)
def test_addresses(address: str, path: str, printed: str) -> None:
    place = DropboxAddress.parse(address)
    assert (place.path("a"), place.address) == (path, printed)
    assert DropboxAddress.parse(printed) == place, "the printed address opens the same folder"


@pytest.mark.parametrize("address", ["dropbox://folder", "dropbox://ns:x/a", "dropbox://ns:/a", "dropbox://me:pw@x/a"])
def test_an_address_with_another_host_is_refused_and_not_repeated(address: str) -> None:
    with raising(BadAddress, "dropbox:///") as caught:
        open_store(address)
    assert address not in str(caught.value)


@pytest.mark.parametrize("folder", ["..", "a/../b", ".hidden", "a/b.", "a%2F..%2Fb", "a\\b", "ä", "a*", "%00", " a"])
def test_odd_folders_are_refused(folder: str) -> None:
    with raising(BadAddress):
        open_store(f"dropbox:///{folder}")


def test_it_opens_by_its_address_and_asks_nothing(known: Person) -> None:
    store = open_store("dropbox:///relay")
    assert isinstance(store, DropboxStore)
    assert known.look()["counts"] == {}
    store.put("a", b"data")
    reader = open_store("dropbox:///RELAY", read_only=True)
    assert reader.get(reader.ref("a")) == b"data"
    reader.now()
    assert known.look()["files"] == {"/relay/a": 4}


def test_credentials_come_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DROPBOX_REFRESH_TOKEN", "DROPBOX_APP_KEY", "DROPBOX_APP_SECRET", "DROPBOX_ACCESS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with raising(Denied, "DROPBOX_REFRESH_TOKEN", "DROPBOX_APP_KEY", GUIDES["dropbox"]):
        open_store("dropbox:///relay")
    monkeypatch.setenv("DROPBOX_REFRESH_TOKEN", "r" * 20)
    with raising(Denied, "DROPBOX_APP_KEY"):
        open_store("dropbox:///relay")


@pytest.mark.parametrize("garbled", ["two words", "line\nbreak", "naïve-token", "tab\there"])
def test_a_garbled_token_is_refused_and_not_repeated(garbled: str) -> None:
    with raising(Denied, "DROPBOX_ACCESS_TOKEN") as caught:
        credentials({"DROPBOX_ACCESS_TOKEN": garbled})
    assert garbled not in str(caught.value)
    assert credentials({"DROPBOX_ACCESS_TOKEN": " padded\n"}).access_token == "padded"


def test_a_refresh_token_goes_before_an_access_token_and_the_source_is_named() -> None:
    environ = {"DROPBOX_REFRESH_TOKEN": "refresh", "DROPBOX_APP_KEY": "key", "DROPBOX_ACCESS_TOKEN": "access"}
    assert "DROPBOX_REFRESH_TOKEN" in credentials(environ).source and "DROPBOX_APP_KEY" in credentials(environ).source
    assert credentials(environ).access_token is None
    assert credentials({"DROPBOX_ACCESS_TOKEN": "access"}).source == "DROPBOX_ACCESS_TOKEN"


def test_every_secret_variable_is_known_to_the_mask() -> None:
    names = ("DROPBOX_REFRESH_TOKEN", "DROPBOX_APP_SECRET", "DROPBOX_ACCESS_TOKEN")
    assert secrets_of({name: f"value-of-{name}" for name in names}) == {f"value-of-{name}" for name in names}


def test_a_shared_folder_is_one_store_whatever_its_members_call_it(fake: Fake) -> None:
    ana, ben, eve = fake.account(), fake.account(), fake.account()
    id_ = f"9{ana.name.split('-')[0][6:]}"
    fake.control("share", id=id_, accounts={ana.name: "/Team Relay", ben.name: "/from Ana/relay"})
    first, second = (person.store(f"dropbox://ns:{id_}/runs") for person in (ana, ben))
    ref = first.put("p/r/a", b"data")
    assert second.get(ref) == b"data"
    assert [stat.name for stat in second.list("p/")] == [stat.name for stat in first.list("")] == ["p/r/a"]
    with raising(Denied, f"dropbox://ns:{id_}"):
        eve.store(f"dropbox://ns:{id_}/runs").get(ref)
    mounted = ana.store("dropbox:///team relay/runs")
    assert mounted.get(ref) == b"data" and [stat.name for stat in mounted.list("p")] == ["p/r/a"]
    second.delete(ref)
    assert list(mounted.list("")) == []


def test_paths_have_no_case_but_names_are_never_confused(person: Person) -> None:
    store = person.store("dropbox:///Relay")
    store.put_if_absent("a/b", b"data")
    assert person.store("dropbox:///rELAY").get(store.ref("a/b")) == b"data"
    with raising(ValueError, "A/b"):
        store.put("A/b", b"")
    assert [stat.name for stat in store.list("")] == ["a/b"]


def test_what_others_keep_in_the_folder_is_left_alone(person: Person) -> None:
    root = person.store("dropbox:///")
    root.put("relay2/x", b"")
    store = person.store("dropbox:///relay")
    store.put("a", b"")
    assert [stat.name for stat in store.list("")] == ["a"]
    assert [stat.name for stat in root.list("relay")] == ["relay/a", "relay2/x"]
    store.delete(store.ref("a"))
    root.delete(root.ref("relay"))
    assert person.look()["files"] == {"/relay2/x": 0}
    assert "/relay" in person.look()["folders"], "a folder is never removed"


def test_the_clock_is_dropboxs_not_ours(person: Person, fake: Fake) -> None:
    store = person.store()
    fake.control("set", ahead=5000.0)
    try:
        ahead = store.now()
        modified = store.stat(store.put("a", b"")).modified
        assert ahead <= modified <= store.now()
    finally:
        fake.control("set", ahead=0.0)
    assert 4990 < ahead - store.now() < 5010
    assert person.asked("files/upload") == 1


def test_a_list_may_lag_and_points_do_not(person: Person) -> None:
    store = person.store()
    store.put("old", b"")
    person.change(list_lag=1000.0)
    ref = store.put("new", b"data")
    assert list(store.list("")) == []
    assert store.get(ref) == b"data"


def test_a_long_listing_comes_in_pages(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.dropbox.store._PAGE", 7)
    store = person.store()
    names = sorted(f"f{number % 5}/n{number}" for number in range(40))
    for name in names:
        store.put(name, b"")
    assert [stat.name for stat in store.list("")] == names
    assert person.asked("files/list_folder/continue") >= 5
    person.fault("error", route="continue", error={".tag": "reset"})
    with pytest.raises(Unavailable):
        list(store.list(""))
