"""A token or client that is missing, wrong, too broad or dead is told as what it is, and never shown."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from storage.base import BadAddress, Denied, Expired
from storage.drive.credentials import DriveCredentials, credentials
from storage.drive.store import DriveStore
from storage.guides import GUIDES
from tests.facts import raising
from tests.storage.drive.handle import Fake, Person
from tests.storage.drive.stores import Drive, credentials_of

COLAB = "google.colab.auth"
"""A module that exists on Colab only."""


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
        with raising(Expired, "RELAY_DRIVE_TOKEN", GUIDES["drive"]):
            client.get(ref)


def test_a_token_that_can_do_more_is_refused_before_anything_is_asked(fake: Fake) -> None:
    broad = fake.person(("drive.file", "drive.readonly"))
    with raising(BadAddress, "drive.readonly"):
        Drive(broad)
    assert broad.asked("v3.files") == 0
    whole = fake.person(("drive",))
    with raising(BadAddress, "RELAY_DRIVE_OWN_ACCOUNT=1"):
        Drive(whole)
    assert Drive(whole, own=True).store().put("a", b"")


def test_a_token_without_the_permission_is_named(fake: Fake) -> None:
    with raising(Denied, "drive.file"):
        Drive(fake.person(("drive.appdata",)))


def test_a_wrong_client_is_named(person: Person) -> None:
    person.holds["client_secret"] = "wrong"
    with raising(Expired, "OAuth", "RELAY_DRIVE_TOKEN"):
        Drive(person)


def test_no_secret_is_shown(drive: Drive) -> None:
    found = credentials_of(drive.person)
    secrets = [drive.person.holds[name] for name in ("refresh_token", "client_secret")]
    assert all(secret not in repr(found) and found.masked(f"<{secret}>") == "<***>" for secret in secrets)
    assert drive.store().credentials_source() == "RELAY_DRIVE_TOKEN"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", ["RELAY_DRIVE_TOKEN"]),
        ("{", ["RELAY_DRIVE_TOKEN", "JSON"]),
        ("[]", ["refresh_token", "client_id"]),
        ('{"client_id": "x", "client_secret": "y"}', ["refresh_token"]),
        ('{"installed": {"client_id": "x"}}', ["RELAY_DRIVE_TOKEN"]),
        ('{"type": "service_account", "client_email": "x"}', ["private_key"]),
    ],
)
def test_credentials_that_are_none_say_what_is_missing(text: str, facts: list[str]) -> None:
    with raising(Denied, *facts):
        credentials({"RELAY_DRIVE_TOKEN": text})


def test_a_token_may_lie_in_a_file(drive: Drive, tmp_path: Path) -> None:
    path = tmp_path / "token.json"
    path.write_text(json.dumps(drive.person.authorized_user()))
    found = credentials({"RELAY_DRIVE_TOKEN_FILE": str(path)})
    assert (found.kind, found.source, found.own) == ("user", "RELAY_DRIVE_TOKEN_FILE", False)
    reader, writer = os.pipe()
    with os.fdopen(reader):
        with os.fdopen(writer, "w") as file:
            file.write(path.read_text())
        assert credentials({"RELAY_DRIVE_TOKEN_FILE": f"/dev/fd/{reader}"}) == found, "as `<(…)`"
    os.mkfifo(tmp_path / "pipe")
    for wrong in (tmp_path / "absent", tmp_path, tmp_path / "pipe"):
        with raising(Denied, wrong):
            credentials({"RELAY_DRIVE_TOKEN_FILE": str(wrong)})


def test_on_colab_the_user_is_asked(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for google.colab, which exists there only; its token is its user's own and may be broad."""
    import types

    asked: list[str] = []
    colab, auth = types.ModuleType("google.colab"), types.ModuleType(COLAB)
    auth.authenticate_user = lambda: asked.append("user")  # type: ignore[attr-defined]
    colab.auth = auth  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    monkeypatch.setitem(sys.modules, COLAB, auth)
    monkeypatch.setattr("storage.drive.credentials.find_spec", lambda name: object())
    monkeypatch.setattr("google.auth.default", lambda scopes: (credentials_of(drive.person).google(), "project"))
    found = credentials({})
    assert found == DriveCredentials("colab", COLAB, own=True)
    from storage.drive.client import DriveClient
    from storage.drive.place import DriveAddress

    store = DriveStore(DriveAddress.parse(drive.address), DriveClient(found, drive.address))
    assert store.get(store.put("a", b"data")) == b"data" and asked == ["user"]
