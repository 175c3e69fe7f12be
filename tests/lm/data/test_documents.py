"""Documents of files: every fault is one sentence that names the file and the line."""

from __future__ import annotations

import errno
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from lm.data.documents import check, documents
from lm.data.text import load_text
from lm.data.tokenizer import of_file
from relay.torch.faults import DataError
from tests.facts import raising
from tests.lm.small import small

TEXTS = ["First of all.\n", "Ünïcode — ok.", "third"]


def read(path: Path) -> list[str]:
    return list(documents(check(str(path))))


def as_json(*texts: str) -> bytes:
    return b"\n".join(json.dumps({"text": text, "id": 1}).encode() for text in texts) + b"\n\n"


def test_all_forms_give_the_same_documents(tmp_path: Path) -> None:
    plain, packed, table = (tmp_path / name for name in ("a.jsonl", "a.jsonl.xz", "a.parquet"))
    plain.write_bytes("\ufeff".encode() + as_json(*TEXTS, " "))  # Windows programs write this mark
    packed.write_bytes(lzma.compress(json.dumps(TEXTS[0]).encode() + b"\n" + as_json(*TEXTS[1:])))
    parquet.write_table(pyarrow.table({"text": [*TEXTS, ""], "more": [1, 2, 3, 4]}), table)
    assert read(plain) == read(packed) == read(table) == TEXTS


BLANK = {
    "a.txt": b"\n \t\r\n\n",
    "long.txt": b"    \n" * 2000,
    "a.jsonl": b"\n" + as_json("", " \n") + b"\n",
    "a.jsonl.xz": lzma.compress(as_json("")),
    "a.parquet": b"",
}


@pytest.mark.parametrize("name", BLANK)
@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_file_without_a_letter_is_named(tmp_path: Path, name: str, part: str) -> None:
    """As an empty file is."""
    path = tmp_path / name
    path.write_bytes(BLANK[name])
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table({"text": ["", " "]}), path)
    with raising(DataError, path):
        load_text(small(**{part: str(path)}), tmp_path / "data")
    (tmp_path / "empty.txt").touch()
    with raising(DataError, tmp_path / "empty.txt"):
        load_text(small(**{part: str(tmp_path / "empty.txt")}), tmp_path / "data")


def test_a_blank_stretch_of_a_text_is_still_a_document(tmp_path: Path) -> None:
    """Runs pin the tokens of such texts."""
    (tmp_path / "a.txt").write_text("\n" * 2500 + "text")
    assert read(tmp_path / "a.txt") == ["\n" * 2000, "\n" * 500 + "text"]


def test_plain_text_is_cut_at_blank_lines(tmp_path: Path) -> None:
    path, speech = tmp_path / "a.txt", "A line of some length.\n" * 40 + "\n"
    path.write_text(speech * 9)
    found = read(path)
    assert "".join(found) == speech * 9 and [len(one) // len(speech) for one in found] == [3, 3, 3]


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("empty.txt", b"", ["empty"]),
        ("broken.txt", b"fine\nbad \xff\xfe here\n", ["line 2", "Save it as UTF-8"]),
        ("broken.jsonl", as_json("fine") + b'{"text": "bad\n', ["line 3"]),
        ("broken.jsonl", b'{"text": "\xff"}\n', ["line 1"]),
        ("keyless.jsonl", as_json("fine") + b'{"words": "x"}\n', ["line 3", "text"]),
        ("digits.jsonl", as_json("fine") + b'{"text": "a", "n": ' + b"1" * 5000 + b"}", ["line 3"]),
        ("half.jsonl", b'{"text": "\\ud800"}\n', ["line 1"]),
        ("cut.jsonl.xz", lzma.compress(as_json(*TEXTS))[:-9], [".xz"]),
        ("other.jsonl.xz", b"not compressed", [".xz"]),
        ("other.parquet", b"no table", ["text"]),
        ("other.csv", b"a,b", [".jsonl"]),
    ],
)
def test_faults(tmp_path: Path, name: str, content: bytes, facts: list[str]) -> None:
    (tmp_path / name).write_bytes(content)
    with raising(DataError, name, *facts) as found:
        read(tmp_path / name)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("column", [[1, 2], [b"a", b"b"], [["a"], ["b"]], [{"a": "b"}], [1.5, None], ["\xff"]], ids=str)
def test_a_table_holds_text_or_is_refused(tmp_path: Path, column: list[object]) -> None:
    """Also bytes that are called text and are not UTF-8."""
    values = pyarrow.array(column)
    if column == ["\xff"]:
        values = pyarrow.array([b"\xff"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": values}), tmp_path / "a.parquet")
    with raising(DataError, tmp_path / "a.parquet", "text"):
        read(tmp_path / "a.parquet")


def test_a_file_that_the_system_does_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions, a name that is too long, a folder or a pipe in its place."""
    (tmp_path / "folder.txt").mkdir()
    os.mkfifo(tmp_path / "pipe.txt")
    for name in ("folder.txt", "pipe.txt", "x" * 300 + ".txt"):
        with raising(DataError, tmp_path / name):
            read(tmp_path / name)

    def denied(path: Path, *_: object, **_settings: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / "locked.txt").write_text("text")
    monkeypatch.setattr(Path, "open", denied)
    for use in (read, of_file, lambda path: load_text(small(train=str(path)), tmp_path)):
        with raising(DataError, tmp_path / "locked.txt", os.strerror(errno.EACCES)):
            use(tmp_path / "locked.txt")


def test_a_text_of_a_terabyte_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.txt"
    with path.open("wb") as file:
        file.truncate(10**12)
    never: Callable[..., None] = lambda *_: pytest.fail("it was opened")  # noqa: E731
    monkeypatch.setattr(Path, "open", never)
    with raising(DataError, path, "1,000 GB"):
        read(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with raising(DataError, tmp_path / "none.txt", "data.train"):
        read(tmp_path / "none.txt")
