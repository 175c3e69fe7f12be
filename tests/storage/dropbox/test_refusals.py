"""Whatever Dropbox, the network or a proxy answers is told as what it is, with what to do, and without a secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storage.base import (
    BadAddress,
    Denied,
    Exists,
    Missing,
    QuotaExceeded,
    StoreError,
    Throttled,
    Unavailable,
)
from storage.dropbox import client
from storage.dropbox.store import DropboxStore
from storage.log import Log, Won
from storage.retry import RetryStore
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
ANSWERS: list[tuple[str, dict[str, Any], type[StoreError], str]] = [
    ("429", {"retry_after": 7}, Throttled, "asks to wait"),
    ("429-text", {"retry_after": 7}, Throttled, "asks to wait"),
    ("500-before", {}, Unavailable, "error of its own"),
    ("drop-before", {}, Unavailable, "Is the network up"),
    ("html", {}, Unavailable, "proxy or login"),
    ("400", {"text": "Your app is not permitted: it does not have the required scope 'files.content.write'."},
     Denied, r"permission files\.content\.write\. Tick it in the App Console"),
    ("400", {"text": "Invalid authorization value"}, Denied, r"refused \(400\): Invalid authorization"),
    ("401", {"error": {".tag": "invalid_access_token"}}, Denied, "mistyped, or revoked"),
    ("401", {"error": {".tag": "user_suspended"}}, Denied, "does not accept the credentials"),
    ("401", {"error": {".tag": "missing_scope", "required_scope": "files.content.read"}}, Denied,
     r"permission files\.content\.read"),
]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("kind", "told", "expected", "advice"), ANSWERS, ids=[str(n) for n in range(len(ANSWERS))])
def test_what_any_verb_may_be_answered(
    person: Person, verb: str, kind: str, told: dict[str, Any], expected: type[StoreError], advice: str
) -> None:
    store = person.store()
    store.put("a", b"data")
    person.fault(kind, route="files/", **told)
    with pytest.raises(expected, match=advice) as caught:
        VERBS[verb](store)
    assert type(caught.value) is expected
    assert "dropbox:///relay" in str(caught.value)
    if isinstance(caught.value, Throttled):
        assert caught.value.retry_after == 7
    VERBS[verb](store)


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
    ("verb", "error", "expected", "advice"),
    [
        ("put", not_written("too_many_write_operations"), Throttled, "too many writes"),
        ("put_if_absent", not_written("too_many_write_operations"), Throttled, "too many writes"),
        ("put_if_absent", not_written("conflict", "file"), Exists, "there already"),
        ("put_if_absent", not_written("conflict", "folder"), Denied, "once a folder"),
        ("put", not_written("conflict", "file_ancestor"), Denied, "cannot be a folder"),
        ("put", not_written("insufficient_space"), QuotaExceeded, r"full\. Make room .* of 2\.15 GB"),
        ("put", not_written("team_folder_insufficient_space"), QuotaExceeded, "full"),
        ("put", not_written("upload_traffic_limit_reached"), QuotaExceeded, "traffic"),
        ("put", not_written("no_write_permission"), Denied, "Ask its owner"),
        ("put", not_written("access_restricted"), Denied, "administrator"),
        ("put", not_written("disallowed_name"), Denied, "another run or file name"),
        ("put", {".tag": "path", "reason": {".tag": "malformed_path"}, "upload_session_id": "x"}, BadAddress, "folder"),
        ("put", {".tag": "content_hash_mismatch"}, Unavailable, "damaged on the way"),
        ("put", {".tag": "something_new"}, Unavailable, "refused: other"),
        ("get", refused("path", "restricted_content"), Denied, "legal notice"),
        ("get", refused("path", "locked"), Denied, "unlock it"),
        ("get", refused("path", "not_file"), Missing, "folder, not an object"),
        ("stat", refused("path", "not_found"), Missing, "nothing at this path"),
        ("delete", refused("path_write", "no_write_permission"), Denied, "Ask its owner"),
        ("delete", refused("too_many_write_operations"), Throttled, "too many writes"),
    ],
)
def test_each_refusal_of_the_protocol(
    person: Person, verb: str, error: dict[str, Any], expected: type[StoreError], advice: str
) -> None:
    store = person.store()
    store.put("a", b"data")
    routes = {"put": "upload", "put_if_absent": "upload", "get": "download", "stat": "get_metadata"}
    person.fault("error", route=routes.get(verb, verb), error=error)
    with pytest.raises(expected, match=advice) as caught:
        VERBS[verb](store)
    assert type(caught.value) is expected


def test_an_expired_token_renews_itself_or_says_how_it_could(person: Person) -> None:
    expired = {".tag": "expired_access_token"}
    lasting, short = person.store(), person.store(short_lived=True)
    lasting.put("a", b"data")
    person.fault("401", error=expired, route="files/upload")
    assert lasting.put_if_absent("b", b"new") == "b"
    assert person.asked("oauth2/token") == 2
    person.fault("401", error=expired, route="files/", times=2)
    with pytest.raises(Denied, match=r"expired.* Set DROPBOX_REFRESH_TOKEN"):
        short.get(short.ref("a"))


def test_a_revoked_or_foreign_token_is_denied(person: Person, fake: Fake) -> None:
    other = fake.account()
    person.holds["app_key"] = other.holds["app_key"]
    with pytest.raises(Denied, match="invalid_client"):
        person.store().stat("a")
    other.change(revoked=True)
    for short_lived in (False, True):
        with pytest.raises(Denied, match="revoked"):
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
    with pytest.raises(Denied, match=missing.replace(".", r"\.")):
        VERBS[verb](store)


def test_only_three_permissions_are_needed(person: Person) -> None:
    person.change(scopes=["files.metadata.read", "files.content.read", "files.content.write"], quota=1000)
    store = person.store()
    store.put("a", b"data")
    for verb in VERBS.values():
        verb(store)
    with pytest.raises(QuotaExceeded, match="full"):
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


def test_a_full_dropbox_says_how_full(person: Person) -> None:
    person.change(quota=3_000_000)
    store = person.store()
    store.put("a", b"x" * 2_900_000)
    assert store.quota() == (2_900_000, 3_000_000)
    for write in (store.put, store.put_if_absent):
        with pytest.raises(QuotaExceeded, match=r"Make room .*0\.00 of 0\.00 GB are used"):
            write("b", b"x" * 200_000)


def test_one_call_is_one_request(person: Person) -> None:
    """Neither the SDK nor what is below it sends anything again by itself: an answer is the answer to this request."""
    store = person.store()
    store.put("a", b"data")
    for kind in ("500-before", "drop-before", "429"):
        before = person.asked("files/upload")
        person.fault(kind, route="files/upload", times=9)
        with pytest.raises(Unavailable):
            store.put_if_absent("b", b"new")
        person.heal()
        assert person.asked("files/upload") == before + 1


@pytest.mark.parametrize("kind", ["500-after", "drop-after", "hang-after"])
def test_a_lost_reply_is_unavailable_and_the_log_finds_out(
    person: Person, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 0.6)
    store = person.store()
    person.fault(kind, route="files/upload", seconds=1.0 if kind == "hang-after" else 0)
    with pytest.raises(Unavailable):
        store.put_if_absent("a", b"mine")
    assert store.put_if_absent("a", b"mine") == "a", "our own bytes are no conflict"
    with pytest.raises(Exists):
        store.put_if_absent("a", b"another's")
    log = Log(store, "runs/p/r/ledger/", sleep=lambda _: None)
    person.fault(kind, route="files/upload", seconds=1.0 if kind == "hang-after" else 0)
    assert isinstance(log.append(0, b"mine"), Won)


def test_the_wait_that_is_asked_for_is_kept(person: Person) -> None:
    slept: list[float] = []
    store = RetryStore(person.store(), sleep=slept.append, jitter=lambda: 0.0)
    person.fault("429", retry_after=9, route="files/upload")
    person.fault("error", error=not_written("too_many_write_operations"), route="files/upload")
    store.put("a", b"data")
    assert slept == [9.0, 1.0]


def test_a_storm_of_refusals_passes(person: Person) -> None:
    """Half of all requests are refused in one way or another; everything is there in the end."""
    store = RetryStore(person.store(), sleep=lambda _: None, jitter=lambda: 0.0, attempts=30)
    for kind in ("429", "500-after", "500-before", "drop-after", "drop-before"):
        person.fault(kind, route="files/", chance=0.12, times=-1)
    for number in range(20):
        assert store.get(store.put(f"x/{number}", b"%d" % number)) == b"%d" % number
    store.delete(store.ref("x/0"))
    assert [stat.name for stat in store.list("x/")] == sorted(f"x/{number}" for number in range(1, 20))
    assert len(person.look()["met"]) > 20


def test_damage_on_the_way_is_noticed(person: Person) -> None:
    store = person.store()
    person.fault("flip", route="files/upload")
    with pytest.raises(Unavailable, match="damaged on the way"):
        store.put("a", b"data")
    with pytest.raises(Missing):
        store.stat(store.ref("a"))
    store.put("a", b"data" * 1000)
    for kind, complaint in (("flip", "damaged on its way"), ("cut", "no answer")):
        person.fault(kind, route="files/download")
        with pytest.raises(Unavailable, match=complaint):
            store.get(store.ref("a"))
    person.fault("cut", route="files/download")
    with pytest.raises(Unavailable, match="no answer"):
        store.read_range(store.ref("a"), 0, 4000)
