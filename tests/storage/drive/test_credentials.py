"""A token or client that is missing, wrong, too broad or dead is told as what it is, and never shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from storage.base import BadAddress, Denied
from storage.drive.credentials import Credentials, credentials
from storage.drive.store import DriveStore
from tests.storage.drive.handle import Fake, Person
from tests.storage.drive.stores import Drive, credentials_of


def test_an_expired_access_token_renews_itself(drive: Drive) -> None:
    store = drive.store()
    ref = store.put("a", b"data")
    drive.person.expire()
    assert store.get(ref) == b"data"


def test_a_revoked_token_says_why_it_may_have_died(drive: Drive) -> None:
    store = drive.store()
    ref = store.put("a", b"data")
    drive.person.expire(revoke=True)
    for client in (store, drive.store()):
        with pytest.raises(Denied, match=r"expired or was revoked.* In production"):
            client.get(ref)


def test_a_token_that_can_do_more_is_refused_before_anything_is_asked(fake: Fake) -> None:
    broad = fake.person(("drive.file", "drive.readonly"))
    with pytest.raises(BadAddress, match=r"can do more than it should \(drive\.readonly\)"):
        Drive(broad)
    assert broad.asked("v3.files") == 0
    whole = fake.person(("drive",))
    with pytest.raises(BadAddress, match=r"revoke this one .*RELAY_DRIVE_OWN_ACCOUNT=1"):
        Drive(whole)
    assert Drive(whole, own=True).store().put("a", b"")


def test_a_token_without_the_permission_is_named(fake: Fake) -> None:
    with pytest.raises(Denied, match=r"lacks the permission drive\.file"):
        Drive(fake.person(("drive.appdata",)))


def test_a_wrong_client_is_named(person: Person) -> None:
    person.holds["client_secret"] = "wrong"
    with pytest.raises(Denied, match="does not know the OAuth client"):
        Drive(person)


def test_no_secret_is_shown(drive: Drive) -> None:
    found = credentials_of(drive.person)
    secrets = [drive.person.holds[name] for name in ("refresh_token", "client_secret")]
    assert all(secret not in repr(found) and found.masked(f"<{secret}>") == "<***>" for secret in secrets)
    assert drive.store().credentials_source() == "RELAY_DRIVE_TOKEN"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "no Google Drive credentials: set RELAY_DRIVE_TOKEN"),
        ("{", "holds no JSON"),
        ("[]", "lacks refresh_token and client_id"),
        ('{"client_id": "x", "client_secret": "y"}', "lacks refresh_token"),
        ('{"installed": {"client_id": "x"}}', "client's file, not a token"),
        ('{"type": "service_account", "client_email": "x"}', "lacks private_key"),
    ],
)
def test_credentials_that_are_none_say_so(text: str, advice: str) -> None:
    with pytest.raises(Denied, match=advice):
        credentials({"RELAY_DRIVE_TOKEN": text})


def test_a_token_may_lie_in_a_file(drive: Drive, tmp_path: Path) -> None:
    path = tmp_path / "token.json"
    path.write_text(json.dumps(drive.person.authorized_user()))
    found = credentials({"RELAY_DRIVE_TOKEN_FILE": str(path)})
    assert (found.kind, found.source, found.own) == ("user", "RELAY_DRIVE_TOKEN_FILE", False)
    for wrong in (tmp_path / "absent", tmp_path):
        with pytest.raises(Denied, match="cannot read"):
            credentials({"RELAY_DRIVE_TOKEN_FILE": str(wrong)})


def test_on_colab_the_user_is_asked(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for google.colab, which exists there only; its token is its user's own and may be broad."""
    import types

    asked: list[str] = []
    colab, auth = types.ModuleType("google.colab"), types.ModuleType("google.colab.auth")
    auth.authenticate_user = lambda: asked.append("user")  # type: ignore[attr-defined]
    colab.auth = auth  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    monkeypatch.setitem(sys.modules, "google.colab.auth", auth)
    monkeypatch.setattr("storage.drive.credentials.find_spec", lambda name: object())
    monkeypatch.setattr("google.auth.default", lambda scopes: (credentials_of(drive.person).google(), "project"))
    found = credentials({})
    assert found == Credentials("colab", "google.colab.auth", own=True)
    from storage.drive.client import Client
    from storage.drive.place import Place

    store = DriveStore(Place.parse(drive.address), Client(found, drive.address))
    assert store.get(store.put("a", b"data")) == b"data" and asked == ["user"]
