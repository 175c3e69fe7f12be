"""The Python of docs/how-to/drive.md does what the page says."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

import pytest

from storage.drive.credentials import FILE, NARROW, TOKEN, credentials
from storage.drive.place import DriveAddress
from tests.storage.drive.handle import Person
from tests.storage.drive.stores import Drive
from tests.storage.fakes.process import ROOT

PAGE = (ROOT / "docs/how-to/drive.md").read_text()
(BLOCK,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(block: str) -> None:
    """Execute a block as a person would who pastes it."""
    exec(compile(block, "docs/how-to/drive.md", "exec"), {})  # noqa: S102 - our own page


def test_the_token_of_the_page_opens_a_store(person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for google_auth_oauthlib, whose browser window nobody can answer here."""
    asked: list[object] = []

    class Flow:
        @staticmethod
        def from_client_secrets_file(path: str, scopes: list[str]) -> type[Flow]:
            asked.append((path, scopes))
            return Flow

        @staticmethod
        def run_local_server(port: int) -> object:
            return person.credentials()

    module = types.ModuleType("google_auth_oauthlib.flow")
    module.InstalledAppFlow = Flow  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "google_auth_oauthlib", types.ModuleType("google_auth_oauthlib"))
    monkeypatch.setitem(sys.modules, "google_auth_oauthlib.flow", module)
    monkeypatch.chdir(tmp_path)
    run(BLOCK)
    assert asked == [("client.json", [NARROW])]
    found = credentials({FILE: str(tmp_path / "token.json")})
    assert found.info["refresh_token"] == person.holds["refresh_token"]
    assert json.loads((tmp_path / "token.json").read_text())["client_id"] == person.holds["client_id"]
    with pytest.raises(FileExistsError):
        run(BLOCK)  # a token is never overwritten by accident


def test_the_page_names_what_there_is(drive: Drive) -> None:
    for word in (TOKEN, FILE, "RELAY_DRIVE_OWN_ACCOUNT", NARROW, "drive://new", "python -m storage.drive newest"):
        assert word in PAGE
    assert DriveAddress.parse(drive.address).address == drive.address
