"""A store behind a link that leads nowhere: named as that, not begun anew, and not taken for an empty store."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.base import Unavailable
from storage.local import LocalStore


@pytest.mark.parametrize("below", ["", "inner/store"])
def test_a_link_to_nowhere_is_named(tmp_path: Path, below: str) -> None:
    target = tmp_path / "disk"
    (tmp_path / "link").symlink_to(target)
    store = LocalStore(tmp_path / "link" / below)
    for look in (lambda: store.put("a", b"1"), lambda: store.get(store.ref("a")), lambda: list(store.list(""))):
        with pytest.raises(Unavailable, match="disk, which is not there"):
            look()
    assert not target.exists()
    target.mkdir()  # the disk is mounted
    assert store.get(store.put("a", b"1")) == b"1"


def test_a_link_that_leads_to_itself_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(Unavailable, match="is a link to"):
        LocalStore(tmp_path / "loop").put("a", b"1")
