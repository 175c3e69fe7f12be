"""Commands on the fake Drive, refused: an address, a token or its permissions that do not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.drive.handle import Fake
from tests.storage.drive.stores import holding
from tests.storage.remote.test_sessions import Member

pytestmark = pytest.mark.slow


def test_a_wrong_address_token_or_scope_is_one_line_and_78_or_69(fake: Fake, tmp_path: Path) -> None:
    owner, stranger, broad = (holding(person) for person in (fake.person(), fake.person(), fake.person(("drive",))))
    desk = Member(tmp_path / "ana", owner, "drive://new")
    assert "`init`" in desk("status", "--run", "r", code=78).err
    desk.environ["RELAY_STORE"] = desk("init", "--run", "r", "--json").json["address"]
    for held, fact in ((stranger, desk.environ["RELAY_STORE"].split("/")[2]), (broad, "RELAY_DRIVE_OWN_ACCOUNT")):
        desk.held_by_person = held
        (line,) = desk("status", "--run", "r", code=78).err.strip().splitlines()
        assert fact in line
