"""A file is hashed once, in whole and by blocks; whoever asks for a block waits no longer than needed."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path
from random import Random

import pytest

from storage import digests
from storage.base import BlockHash
from storage.digests import BlockHasher, Digests, sharing


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1000, 1001])
def test_the_whole_and_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, beside: bool) -> None:
    monkeypatch.setattr(digests, "_PIECE", 64)
    data = Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    found = Digests(tmp_path / "file", 100, beside=beside)
    blocks = [hashlib.sha256(data[at : at + 100]).digest() for at in range(0, size, 100)]
    assert [found.of_block(number) for number in range(len(blocks))] == blocks
    assert found.whole() == (size, hashlib.sha256(data).hexdigest())
    assert found.over_blocks() == BlockHash(100, hashlib.sha256(b"".join(blocks)).hexdigest())
    with pytest.raises(OSError) as caught:
        found.of_block(len(blocks))
    assert caught.value.errno == errno.ESTALE
    assert Digests(tmp_path / "file", None, beside=beside).whole() == found.whole()
    for piece in (1, 30, 100, 250, 1001):
        hasher = BlockHasher(100)
        for at in range(0, size, piece):
            hasher.update(data[at : at + piece])
        assert hasher.hash() == found.over_blocks()


def test_what_cannot_be_read_is_told_to_everybody_who_asks(tmp_path: Path) -> None:
    for beside in (True, False):
        found = Digests(tmp_path / "absent", 100, beside=beside)
        for ask in (found.whole, found.over_blocks, lambda found=found: found.of_block(3)):
            with pytest.raises(FileNotFoundError):
                ask()


def test_a_shared_pass_is_taken_only_for_the_same_file_and_blocks(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).write_bytes(name.encode())
    mine = Digests(tmp_path / "one", 100)
    with sharing(mine):
        assert Digests.of(tmp_path / "one", 100) is mine
        assert Digests.of(tmp_path / "one", None) is mine
        assert Digests.of(tmp_path / "one", 50) is not mine
        assert Digests.of(tmp_path / "other", 100) is not mine
    assert Digests.of(tmp_path / "one", 100) is not mine
