"""What only Dropbox refuses, by the tags of its errors and the permissions of its tokens; no secret is repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storage.base import (
    BadAddress,
    Denied,
    Exists,
    Expired,
    Missing,
    QuotaExceeded,
    StoreError,
    Throttled,
    Unavailable,
)
from storage.dropbox.store import DropboxStore
from tests.facts import raising
from tests.storage.dropbox.handle import Fake, Person

VERBS: dict[str, Callable[[DropboxStore], object]] = {
    "put": lambda store: store.put("a", b"new"),
    "put_if_absent": lambda store: store.put_if_absent("b", b"new"),
    "get": lambda store: store.get(store.ref("a")),
    "read_range": lambda store: store.read_range(store.ref("a"), 0, 2),
    "stat": lambda store: store.stat(store.ref("a")),
    "delete": lambda store: store.delete(store.ref("a")),
    "list": lambda store: list(store.list("")),
    "now": lambda store: store.now(),
}


def refused(*path: str) -> dict[str, Any]:
    """The JSON of nested unions."""
    inner: dict[str, Any] = {".tag": path[-1]}
    for tag in reversed(path[:-1]):
        inner = {".tag": tag, tag: inner}
    return inner


def not_written(*path: str) -> dict[str, Any]:
    """UploadError.path, whose value is a struct."""
    return {".tag": "path", "reason": refused(*path), "upload_session_id": "x"}


@pytest.mark.parametrize(
    ("verb", "error", "expected"),
    [
        ("put", not_written("too_many_write_operations"), Throttled),
        ("put_if_absent", not_written("too_many_write_operations"), Throttled),
        ("put_if_absent", not_written("conflict", "file"), Exists),
        ("put_if_absent", not_written("conflict", "folder"), Denied),
        ("put", not_written("conflict", "file_ancestor"), Denied),
        ("put", not_written("insufficient_space"), QuotaExceeded),
        ("put", not_written("team_folder_insufficient_space"), QuotaExceeded),
        ("put", not_written("upload_traffic_limit_reached"), QuotaExceeded),
        ("put", not_written("no_write_permission"), Denied),
        ("put", not_written("access_restricted"), Denied),
        ("put", not_written("disallowed_name"), Denied),
        ("put", {".tag": "path", "reason": {".tag": "malformed_path"}, "upload_session_id": "x"}, BadAddress),
        ("put", {".tag": "content_hash_mismatch"}, Unavailable),
        ("put", {".tag": "something_new"}, Unavailable),
        ("get", refused("path", "restricted_content"), Denied),
        ("get", refused("path", "locked"), Denied),
        ("get", refused("path", "not_file"), Missing),
        ("stat", refused("path", "not_found"), Missing),
        ("delete", refused("path_write", "no_write_permission"), Denied),
        ("delete", refused("too_many_write_operations"), Throttled),
    ],
)
def test_each_refusal_of_the_protocol(
    person: Person, verb: str, error: dict[str, Any], expected: type[StoreError]
) -> None:
    store = person.store()
    store.put("a", b"data")
    routes = {"put": "upload", "put_if_absent": "upload", "get": "download", "stat": "get_metadata"}
    person.fault("error", route=routes.get(verb, verb), error=error)
    with raising(expected, "dropbox:///relay") as caught:
        VERBS[verb](store)
    if isinstance(caught.value, Throttled):
        assert caught.value.retry_after == 1.0, "which names no time"


def test_an_expired_token_renews_itself_or_says_how_it_could(person: Person) -> None:
    expired = {".tag": "expired_access_token"}
    lasting, short = person.store(), person.store(short_lived=True)
    lasting.put("a", b"data")
    person.fault("401", error=expired, route="files/upload")
    assert lasting.put_if_absent("b", b"new") == "b"
    assert person.asked("oauth2/token") == 2
    person.fault("401", error=expired, route="files/", times=2)
    with raising(Expired, "DROPBOX_REFRESH_TOKEN", "DROPBOX_APP_KEY"):
        short.get(short.ref("a"))


def test_a_revoked_or_foreign_token_is_denied(person: Person, fake: Fake) -> None:
    other = fake.account()
    person.holds["app_key"] = other.holds["app_key"]
    with raising(Denied, "invalid_client"):
        person.store().stat("a")
    other.change(revoked=True)
    for short_lived in (False, True):
        with raising(Expired, "dropbox:///relay"):
            other.store(short_lived=short_lived).stat("a")


@pytest.mark.parametrize(
    ("missing", "verb"),
    [
        ("files.content.write", "put"),
        ("files.content.write", "delete"),
        ("files.content.read", "get"),
        ("files.metadata.read", "list"),
        ("files.metadata.read", "now"),
    ],
)
def test_a_missing_permission_is_named(person: Person, missing: str, verb: str) -> None:
    store = person.store()
    store.put("a", b"data")
    scopes = ["files.metadata.read", "files.content.read", "files.content.write", "account_info.read"]
    person.change(scopes=[scope for scope in scopes if scope != missing])
    with raising(Denied, missing):
        VERBS[verb](store)


def test_only_three_permissions_are_needed(person: Person) -> None:
    person.change(scopes=["files.metadata.read", "files.content.read", "files.content.write"], quota=1000)
    store = person.store()
    store.put("a", b"data")
    for verb in VERBS.values():
        verb(store)
    with pytest.raises(QuotaExceeded):
        store.put("c", b"x" * 2000)


def test_no_secret_is_repeated(person: Person) -> None:
    token = person.holds["access_token"]
    store = person.store(short_lived=True)
    person.fault("400", text=f'Invalid authorization value in HTTP header "Authorization": "Bearer {token}"')
    with pytest.raises(Denied) as caught:
        store.put("a", b"")
    assert token not in str(caught.value) and "***" in str(caught.value)
    assert token not in repr(person.credentials(True)) and person.holds["refresh_token"] not in repr(
        person.credentials()
    )


def test_damage_on_the_way_is_noticed(person: Person) -> None:
    store = person.store()
    person.fault("flip", route="files/upload")
    with pytest.raises(Unavailable):
        store.put("a", b"data")
    with pytest.raises(Missing):
        store.stat(store.ref("a"))
    store.put("a", b"data" * 1000)
    person.fault("flip", route="files/download")
    with pytest.raises(Unavailable):
        store.get(store.ref("a"))


def test_our_own_bytes_are_no_conflict_with_themselves(person: Person) -> None:
    store = person.store()
    person.fault("drop-after", route="files/upload")
    with pytest.raises(Unavailable):
        store.put_if_absent("a", b"mine")
    assert store.put_if_absent("a", b"mine") == "a"
    with pytest.raises(Exists):
        store.put_if_absent("a", b"another's")
