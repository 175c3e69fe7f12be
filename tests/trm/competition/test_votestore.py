"""The file of votes: small, one writer, bound, and nothing false is believed after a kill or a flipped bit."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.facts import raising
from trm.competition.votestore import AnotherSolves, NoRoom, OtherVotes, Vote, VoteStore, _framed, _packed, read

BINDING = {"weights": "w", "tasks": "t", "variants": 4}
GRIDS = [None, b"\1\1\7", b"\2\3\0\1\2\3\4\5", b"\1\2\0\0"]
BLOCKS = [[Vote(3 * b + i, GRIDS[(b + i) % 4], b - 0.5) for i in range(3)] for b in range(6)]


def written(path: Path, blocks: list[list[Vote]] = BLOCKS) -> bytes:
    store = VoteStore(path)
    store.begin(**BINDING)
    for block in blocks:
        store.append(block)
    store.sync()
    store.close()
    return path.read_bytes()


def test_votes_come_back_and_more_are_added(tmp_path: Path) -> None:
    written(tmp_path / "v", BLOCKS[:4])
    written(tmp_path / "v", BLOCKS[4:])
    written(tmp_path / "whole")
    assert read(tmp_path / "v").votes == [vote for block in BLOCKS for vote in block]
    assert (tmp_path / "v").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_vote_costs_at_most_thirty_bytes(tmp_path: Path) -> None:
    """Grids aside, even if each vote is a block of its own."""
    before = len(written(tmp_path / "v", [[Vote(0, GRIDS[2], 1.0)]]))
    written(tmp_path / "v", [[Vote(row, GRIDS[2], 1.0)] for row in range(1, 101)])
    assert (len((tmp_path / "v").read_bytes()) - before) / 100 <= 30


def test_cut_anywhere_whole_blocks_stay(tmp_path: Path) -> None:
    path = tmp_path / "v"
    data = written(path)
    every = [vote for block in BLOCKS for vote in block]
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        found = read(path)
        assert found.votes == every[: len(found.votes)] and len(found.votes) % 3 == 0 and not found.damaged
    path.write_bytes(data[:-1])
    written(path, [BLOCKS[-1]])
    assert path.read_bytes() == data


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_is_never_believed(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "v"
    data = bytearray(written(path))
    at = random.Random(seed).randrange(len(data))
    data[at] ^= 1 << seed % 8
    path.write_bytes(data)
    every = [vote for block in BLOCKS for vote in block]
    found = read(path)
    assert found.votes == every[: len(found.votes)] and len(found.votes) < len(every) and found.good < found.size
    store = VoteStore(path)
    again = store.begin(**BINDING)
    store.close()
    assert again.votes == found.votes
    assert path.with_name("v.damaged").exists() == found.damaged
    assert not found.damaged or path.with_name("v.damaged").read_bytes() == bytes(data)


@pytest.mark.parametrize(
    "block",
    [
        b"[]", b"3", b"no JSON", b"\xff",
        _packed([Vote(18, GRIDS[1], 0.0)], {}), _packed([Vote(3, GRIDS[1], 0.0)], {}),
        _packed([Vote(17, GRIDS[1], 0.0), Vote(17, None, 0.0)], {}),
        *(_packed([Vote(17, grid, 0.0)], {}) for grid in (b"\1\1\12", b"\0\5", b"\0\0", b"\1\37" + bytes(31))),
    ],
)  # fmt: skip
def test_a_block_with_a_right_checksum_and_odd_content_is_set_aside(tmp_path: Path, block: bytes) -> None:
    """A row beyond the last, or twice; a color or a grid that no submission may hold; a binding that is none."""
    path = tmp_path / "v"
    whole = written(path)
    as_binding = len(block) < 8
    path.write_bytes(_framed(block) if as_binding else whole + _framed(block[8:]))
    store = VoteStore(path)
    found = store.begin(18, **BINDING)
    store.close()
    assert found.damaged and len(found.votes) == (0 if as_binding else 18)
    assert len(read(path).votes) == len(found.votes) and path.with_name("v.damaged").exists()


@pytest.mark.parametrize("key", BINDING)
def test_another_binding_is_refused_and_named(tmp_path: Path, key: str) -> None:
    data = written(tmp_path / "v")
    store = VoteStore(tmp_path / "v")
    with pytest.raises(OtherVotes) as caught:
        store.begin(**BINDING | {key: "other"})
    store.close()
    assert caught.value.differing == {key: (BINDING[key], "other")} and (tmp_path / "v").read_bytes() == data


def test_votes_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "votes").mkdir()
    store = VoteStore(tmp_path / "votes")
    with raising(NoRoom, tmp_path / "votes"):
        store.check()
    store.close()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_a_folder_that_takes_no_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Read-only, another's, or full: it is not taken for another process that solves."""

    def refused(path: object, *_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "open", refused)
    with raising(NoRoom, tmp_path / "v", os.strerror(number)):
        VoteStore(tmp_path / "v")


def test_one_writer(tmp_path: Path) -> None:
    first = VoteStore(tmp_path / "v")
    with pytest.raises(AnotherSolves) as caught:
        VoteStore(tmp_path / "v")
    assert caught.value.exit_code == 73
    first.close()
    VoteStore(tmp_path / "v").close()


@given(
    st.lists(
        st.tuples(st.integers(0, 2**32 - 2), st.sampled_from(GRIDS), st.floats(width=32, allow_nan=False)),
        unique_by=lambda vote: vote[0],
    )
)
def test_any_votes_come_back(tmp_path_factory: pytest.TempPathFactory, raw: list[tuple[int, bytes, float]]) -> None:
    path = tmp_path_factory.mktemp("votes") / "v"
    votes = [Vote(*one) for one in raw]
    written(path, [votes])
    assert read(path).votes == votes
