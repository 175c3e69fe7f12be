"""A file is replaced at once or stays as it was (relay/core/wholefile.py)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.app.handout import hand_out
from relay.core.errors import BadConfig
from relay.core.wholefile import write_whole
from tests.facts import raising


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.html"
    write_whole(file, b"old")

    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with raising(BadConfig, file, os.strerror(28)):
        hand_out(file, b"new", "Give another.")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"] and file.read_bytes() == b"old"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_only_a_file_is_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """As root, a device like /dev/null would be gone."""
    make(tmp_path / "made")
    with raising(BadConfig, tmp_path / "made", "not a file"):
        hand_out(tmp_path / "made", b"new", "Give another.")
    assert not (tmp_path / "made").is_file() and [path.name for path in tmp_path.iterdir()] == ["made"]


def test_what_was_handed_out_is_described(tmp_path: Path) -> None:
    told = hand_out(tmp_path / "f", b"abc", "")
    assert (told["bytes"], told["sha256"][:8]) == (3, "ba7816bf") and (tmp_path / "f").read_bytes() == b"abc"
