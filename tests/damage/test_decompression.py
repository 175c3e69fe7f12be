"""Only a file that a person names (a CSV, a text) is decompressed, line by line, and the wheels of a bundle, whose
hashes are checked; objects of a store never are.

A reference's checkpoint is a zip archive too. If one of its parts is compressed, it is refused.
"""

from __future__ import annotations

import ast
import gzip
import lzma
import tracemalloc
from pathlib import Path

import pytest

from lm.data import documents
from relay.torch.faults import DataError
from tests.damage.harms import ZSTD_BOMB
from tests.facts import raising
from trm.data import sudoku

ROOT = Path(__file__).parent.parent.parent
UNPACKERS = {
    "gzip",
    "zlib",
    "bz2",
    "lzma",
    "zipfile",
    "tarfile",
    "zstandard",
    "zstd",
    "pyzstd",
    "lz4",
    "snappy",
    "brotli",
}
ROW = "x,1234341221434321,1234341221434321,0\n"


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def test_nothing_else_decompresses() -> None:
    sources = [path for package in ("storage", "relay", "trm", "lm") for path in (ROOT / package).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in sources if imported(path) & UNPACKERS}
    texts = {"trm/data/csvrows.py", "trm/sources.py", "lm/data/documents.py"}
    wheels = {"trm/competition/bundle.py", "trm/competition/supervisor.py"}
    assert found == texts | wheels | {"trm/interop.py", "trm/competition/votestore.py"}, "the last for its checksums"
    assert not [path for path in sources if "unpack_archive" in path.read_text()]


@pytest.mark.parametrize("filler", [b"\0", b"1", b"\xff", b'"'], ids=["zeros", "digits", "no text", "quotes"])
def test_a_line_without_end_in_a_packed_file_is_refused_before_memory_is_used(tmp_path: Path, filler: bytes) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(f"{sudoku.HEADER}\n{ROW}".encode())
        for _ in range(64):
            file.write(filler * 2**20)
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    try:
        with raising(DataError, "bomb.csv.gz", "line 3"):
            sudoku.read_csv(path, 2)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_a_text_without_line_ends_in_a_packed_file_is_refused_before_memory_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "LONGEST_LINE", 2**20)
    path = tmp_path / "bomb.jsonl.xz"
    with lzma.open(path, "wb", preset=0) as file:
        for _ in range(64):
            file.write(b"1" * 2**20)
    tracemalloc.start()
    try:
        with raising(DataError, "bomb.jsonl.xz"):
            list(documents.documents(path))
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_a_zstd_file_in_place_of_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.csv.zst"
    path.write_bytes(ZSTD_BOMB)
    with raising(DataError, path, "line 1"):
        sudoku.read_csv(path, 2)


@pytest.mark.parametrize("cut", [2, 10, 30, -1])
def test_a_packed_file_that_is_damaged_is_named(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "train.csv.gz"
    path.write_bytes(gzip.compress(f"{sudoku.HEADER}\n{ROW * 50}".encode())[:cut])
    with raising(DataError, path):
        sudoku.read_csv(path, 2)
