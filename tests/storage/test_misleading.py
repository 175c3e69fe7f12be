"""Mistakes outside the address are named where they are: a key, a region, a certificate authority (not the network)."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from relay.core.errors import Exit
from relay.core.errors import of_store as meant
from storage.base import BadAddress, BadSetting, Denied, StoreError, Unavailable, open_store
from storage.drive.credentials import DriveCredentials
from storage.drive.errors import store_error as drive_error
from storage.dropbox.client import store_error as dropbox_error
from storage.dropbox.credentials import DropboxCredentials
from tests.app.cli import Desk
from tests.facts import raising
from tests.storage.s3.servers import ENVIRONMENT

ADDRESS = "s3://bucket/p?endpoint_url=http://127.0.0.1:9"
GOOD = {"AWS_ACCESS_KEY_ID": "AKIDNOBODY123456", "AWS_SECRET_ACCESS_KEY": "nobody+nobody/nobody"}
REFUSED = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    for name, value in {**GOOD, "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)


def asked(address: str = ADDRESS) -> None:
    store = open_store(address)
    store.stat(store.ref("name"))


@pytest.mark.parametrize("name", [*GOOD, "AWS_SESSION_TOKEN"])
@pytest.mark.parametrize("form", ["{}\n", " {}", "{}\u200b", "wJalr\nXUtnFEMI{}"])
def test_a_key_with_a_break_in_it_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch, name: str, form: str) -> None:
    monkeypatch.setenv(name, form.format("PLANTEDKEY"))
    with raising(Denied, name) as caught:
        asked()
    assert "PLANTED" not in str(caught.value) and meant(caught.value).exit_code == Exit.STORAGE_UNREACHABLE


def test_a_key_in_the_sdks_own_file_is_named_with_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in GOOD:
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = AKID\n  next\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    with raising(Denied, "aws_access_key_id", "shared-credentials-file"):
        asked()


def test_blanks_around_a_region_do_not_matter_and_one_inside_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", " eu-central-1\n")
    with pytest.raises(Unavailable):
        asked()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu central-1")
    with raising(BadSetting, "AWS_DEFAULT_REGION", "'eu central-1'"):
        asked()
    for region in ("eu%20central-1", "eu-central-1%20"):
        with raising(BadAddress, "region", "blank"):
            open_store(f"{ADDRESS}&region={region}")


def test_the_advice_for_a_setting_does_not_send_to_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu central-1")
    told = Desk(tmp_path, environ={"RELAY_STORE": ADDRESS})("status", code=78).err
    assert "AWS_DEFAULT_REGION" in told and "RELAY_STORE" not in told and "network" not in told


def test_tls_inspection_is_named_with_the_variable_that_each_library_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import dropbox
    import requests
    from google.auth.exceptions import TransportError
    from httplib2 import certs

    authority = tmp_path / "authority.pem"
    authority.write_text("")
    for name in ("REQUESTS_CA_BUNDLE", "HTTPLIB2_CA_CERTS"):
        monkeypatch.setenv(name, str(authority))
    session = dropbox.create_session()
    assert session.merge_environment_settings("https://x", {}, None, None, None)["verify"] == str(authority)
    assert certs.where() == str(authority)

    of_dropbox, of_drive = DropboxCredentials(), DriveCredentials("user", "RELAY_DRIVE_TOKEN")
    refused = requests.exceptions.SSLError(REFUSED)
    wrapped = TransportError("no")
    wrapped.__cause__ = REFUSED
    found: list[tuple[StoreError, str]] = [
        (dropbox_error(refused, "x", of_dropbox), "REQUESTS_CA_BUNDLE"),
        (drive_error(REFUSED, "x", of_drive), "HTTPLIB2_CA_CERTS"),
        (drive_error(wrapped, "x", of_drive), "HTTPLIB2_CA_CERTS"),
    ]
    for error, variable in found:
        assert type(error) is Unavailable and variable in str(error) and "network up" not in str(error)
    broken = drive_error(ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), "x", of_drive)
    assert "HTTPLIB2_CA_CERTS" not in str(broken)
    nowhere = OSError("Could not find a suitable TLS CA certificate bundle, invalid path: /x")
    assert type(dropbox_error(nowhere, "x", of_dropbox)) is BadSetting
