"""A store behind a link that leads nowhere: named as that, not begun anew, and not taken for an empty store."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.base import Unavailable
from storage.local import LocalStore
from tests.facts import raising


@pytest.mark.parametrize("below", ["", "inner/store"])
def test_a_link_to_nowhere_is_named(tmp_path: Path, below: str) -> None:
    target = tmp_path / "disk"
    (tmp_path / "link").symlink_to(target)
    store = LocalStore(tmp_path / "link" / below)
    for look in (lambda: store.put("a", b"1"), lambda: store.get(store.ref("a")), lambda: list(store.list(""))):
        with raising(Unavailable, tmp_path / "link", target):
            look()
    assert not target.exists()
    target.mkdir()  # the disk is mounted
    assert store.get(store.put("a", b"1")) == b"1"


def test_a_link_that_leads_to_itself_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with raising(Unavailable, tmp_path / "loop"):
        LocalStore(tmp_path / "loop").put("a", b"1")
