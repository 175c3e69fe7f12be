"""Credentials that are renewed where they came from are used, after one refusal; unchanged ones are not tried again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.base import Denied, Expired, Store, make_store
from storage.log import Log, Won
from tests.storage.badlinks import link
from tests.storage.drive.handle import running as drive_running
from tests.storage.drive.stores import holding
from tests.storage.dropbox.handle import running as dropbox_running
from tests.storage.s3.proxy import Proxy, Reply, Request

CODES = ("ExpiredToken", "InvalidAccessKeyId", "RequestExpired", "InvalidToken")


def keys(path: Path, key: str) -> None:
    path.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=nobody-nobody\n")


def refuse(proxy: Proxy, key: str, code: str) -> None:
    """The server does not accept a key any more."""

    def change(request: Request, reply: Reply) -> None:
        body = f"<Error><Code>{code}</Code><Message>no more</Message></Error>".encode()
        reply.status, reply.content = 400, b"" if request.method == "HEAD" else body
        reply.headers = {"content-type": "application/xml"}

    proxy.alter(change, lambda request: key in request.headers.get("authorization", ""))


def use(store: Store, number: int) -> None:
    """Every verb."""
    ref = store.put(f"a/{number}", b"data")
    assert store.get(ref) == b"data" and store.read_range(ref, 0, 2) == b"da" and store.stat(ref).size == 4
    assert ref in [stat.ref for stat in store.list("a/")] and store.now() > 0
    log = Log(store, f"runs/p/r{number}/ledger/", sleep=lambda _: None)
    assert isinstance(log.append(0, b"entry"), Won)
    store.delete(ref)


@pytest.mark.parametrize("code", CODES)
def test_new_keys_in_the_file_are_used_by_a_running_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    with link("s3", monkeypatch) as behind:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
        keys(tmp_path / "keys", "OLDKEY1234567890")
        store = behind.store()
        ref = store.put("first", b"data")
        refuse(behind.proxy, "OLDKEY1234567890", code)
        before = len(behind.proxy.seen)
        with pytest.raises(Denied):
            store.get(ref)
        assert len(behind.proxy.seen) == before + 1, "the same keys again are not tried"
        keys(tmp_path / "keys", "NEWKEY1234567890")
        assert store.stat(ref).size == 4, "the answer to a HEAD names no reason"
        use(store, 1)
        refused = [r for r in behind.proxy.seen[before:] if "OLDKEY" in r.headers.get("authorization", "")]
        assert len(refused) <= 3


@pytest.mark.parametrize("verb", ["put", "get", "list"])
def test_each_verb_finds_new_keys_at_its_first_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    with link("s3", monkeypatch) as behind:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
        keys(tmp_path / "keys", "OLDKEY1234567890")
        store = behind.store()
        ref = store.put("first", b"data")
        refuse(behind.proxy, "OLDKEY1234567890", "ExpiredToken")
        keys(tmp_path / "keys", "NEWKEY1234567890")
        ask = {"put": lambda: store.put("b", b"1"), "get": lambda: store.get(ref), "list": lambda: list(store.list(""))}
        assert ask[verb]()
        keys(tmp_path / "keys", "OLDKEY1234567890")
        refuse(behind.proxy, "NEWKEY1234567890", "ExpiredToken")
        before = len(behind.proxy.seen)
        with pytest.raises(Denied):
            ask[verb]()
        assert len(behind.proxy.seen) == before + 2, "once for each request, also when the others are refused too"


def test_a_new_token_in_the_file_is_used_on_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person, token = drive_running().person(), tmp_path / "token.json"
    token.write_text(holding(person)["RELAY_DRIVE_TOKEN"])
    monkeypatch.setenv("RELAY_DRIVE_TOKEN_FILE", str(token))
    from storage.base import open_store

    store = open_store(make_store("drive://new"))
    ref = store.put("a", b"data")
    person.expire(revoke=True)
    for _ in range(2):
        with pytest.raises(Expired):
            store.get(ref)
    again = person.with_client(person.holds["client_id"])
    token.write_text(json.dumps(again.authorized_user()))
    assert store.get(ref) == b"data"
    again.expire(revoke=True)
    token.unlink()
    with pytest.raises(Expired):
        store.get(ref)


def test_new_tokens_of_the_environment_are_used_on_dropbox(monkeypatch: pytest.MonkeyPatch) -> None:
    from storage.base import open_store

    person = dropbox_running().account()
    monkeypatch.setenv("DROPBOX_ACCESS_TOKEN", "revoked-token")
    store = open_store("dropbox:///relay")
    with pytest.raises(Expired):
        store.put("a", b"data")
    for name, value in person.environ.items():
        monkeypatch.setenv(name, value)
    ref = store.put("a", b"data")
    assert store.get(ref) == b"data"
