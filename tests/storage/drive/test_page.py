"""docs/how-to/drive-dropbox.md names what there is; its sign-in is tests/app/commands/test_login.py."""

from __future__ import annotations

from storage.drive.credentials import FILE, NARROW, TOKEN
from storage.drive.place import DriveAddress
from tests.storage.drive.stores import Drive
from tests.storage.fakes.process import ROOT

PAGE = (ROOT / "docs/how-to/drive-dropbox.md").read_text()


def test_the_page_names_what_there_is(drive: Drive) -> None:
    for word in (TOKEN, FILE, "RELAY_DRIVE_OWN_ACCOUNT", NARROW, "drive://new", "python -m storage.drive newest"):
        assert word in PAGE
    assert DriveAddress.parse(drive.address).address == drive.address
