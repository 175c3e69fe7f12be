"""CSV files in the Sudoku-Extreme shape: what is read, and one error with file, line and fix for anything else."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.torch.faults import DataError
from tests.facts import raising
from trm.data import sudoku4
from trm.data.sudoku import HEADER, read_csv, write_csv

GOOD = Path(__file__).parents[2] / "data" / "sudoku" / "good.csv"
TEXT = GOOD.read_text()
LINES = TEXT.splitlines()
_, QUESTION, ANSWER, _ = LINES[1].split(",")


def file_with(folder: Path, text: str | bytes) -> Path:
    path = folder / "puzzles.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_reads_tokens() -> None:
    inputs, labels = read_csv(GOOD)
    assert inputs.shape == labels.shape == (12, 81)
    assert inputs.dtype == labels.dtype == torch.uint8
    assert "".join("." if token == 1 else str(token - 1) for token in inputs[0].tolist()) == QUESTION
    assert "".join(str(token - 1) for token in labels[0].tolist()) == ANSWER


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace(".", "0"),
        TEXT.replace("\n", "\r\n"),
        "\ufeff" + TEXT,
        TEXT.rstrip("\n"),
        TEXT.replace("\n", "\n\n"),
        TEXT.replace("source,question", "Source, Question"),
        TEXT.replace("rating\n", "rating,note\n").replace("40\n", '40,"a, ""b""\nc"\n'),
        "\n".join(",".join(reversed(line.split(","))) for line in LINES),
        gzip.compress(TEXT.encode(), mtime=0),
    ],
    ids=["zeros", "crlf", "bom", "no end", "blank lines", "header case", "extra column", "column order", "gzip"],
)
def test_tolerated_spellings(tmp_path: Path, text: str | bytes) -> None:
    for ours, theirs in zip(read_csv(file_with(tmp_path, text)), read_csv(GOOD), strict=True):
        assert torch.equal(ours, theirs)


def test_a_file_longer_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trm.data.sudoku._CHUNK", 5)
    assert torch.equal(read_csv(GOOD)[0][10:], read_csv(file_with(tmp_path, "\n".join([HEADER, *LINES[11:]])))[0])
    with raising(DataError, "line 13", "answer", 80):
        read_csv(file_with(tmp_path, TEXT.replace(LINES[12], f"x,{QUESTION},{ANSWER[:-1]},1")))


def row(question: str = QUESTION, answer: str = ANSWER) -> str:
    """Two good rows and this one, on line 4."""
    return "\n".join([HEADER, LINES[1], LINES[2], f"x,{question},{answer},1", LINES[3]])


SWAPPED = ANSWER[1] + ANSWER[0] + ANSWER[2:]
"""Breaks two columns, but no row."""
RELABELLED = ANSWER.translate(str.maketrans("123456789", "234567891"))
"""A valid grid, but not this puzzle's."""


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", [HEADER]),
        (HEADER, []),
        (gzip.compress(b"", mtime=0), []),
        ("\n".join(LINES[1:]), ["line 1", "'question'"]),
        ("source,question\n", ["line 1", "'answer'"]),
        (row(question=QUESTION[:-1]), ["line 4", "question", 80, 81]),
        (row(answer=ANSWER + "1"), ["line 4", "answer", 82, 81]),
        (row(question="x" + QUESTION[1:]), ["line 4", "question", "'.'", "0-9"]),
        (row(question="é" + QUESTION[1:]), ["line 4", "question"]),
        (row(question="√" + QUESTION[1:]), ["line 4", "question"]),
        (row(answer="0" + ANSWER[1:]), ["line 4", "answer", "1-9"]),
        (row(answer="." + ANSWER[1:]), ["line 4", "answer", "1-9"]),
        (row(answer=SWAPPED), ["line 4", "answer"]),
        (row(answer=RELABELLED), ["line 4", "answer", "question"]),
        (row().replace(f"x,{QUESTION},{ANSWER},1", "x,"), ["line 4", 2]),
        (row(question='"' + QUESTION), ["CSV"]),
        (row(question='"' + QUESTION + '"x'), ["line 4", "CSV"]),
        (TEXT.replace("\n", "\r"), ["CSV"]),
        (TEXT.encode().replace(b"generated", b"g\xe9n\xe9r\xe9", 1), ["line 2", "byte 2", "UTF-8"]),
        (TEXT.encode("utf-16"), ["line 1", "byte 1", "UTF-8"]),
        (gzip.compress(TEXT.encode(), mtime=0)[:-20], ["gzip"]),
        (gzip.compress(TEXT.encode(), mtime=0)[:40] + bytes(100), ["gzip"]),
        (b"\x1f\x8bnot gzip", ["gzip"]),
    ],
)
def test_error_table(tmp_path: Path, text: str | bytes, facts: list[object]) -> None:
    path = file_with(tmp_path, text)
    with raising(DataError, path, *facts) as caught:
        read_csv(path)
    assert "\n" not in str(caught.value)


def test_the_line_number_counts_lines_not_rows(tmp_path: Path) -> None:
    text = f'{HEADER}\n\n"two\nlines",{QUESTION},{ANSWER},1\nx,{QUESTION[1:]},{ANSWER},1\n'
    with raising(DataError, "line 5", "question", 80):
        read_csv(file_with(tmp_path, text))


def test_not_a_file(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.csv", tmp_path, tmp_path / ("x" * 300)):
        with raising(DataError, path):
            read_csv(path)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, os.strerror(13))

    (tmp_path / "secret.csv").touch()
    monkeypatch.setattr(Path, "open", refuse)
    with raising(DataError, tmp_path / "secret.csv", os.strerror(13)):
        read_csv(tmp_path / "secret.csv")


def test_4x4_files(tmp_path: Path) -> None:
    valid = sudoku4.build(10)[1]
    write_csv(tmp_path / "small.csv", "test", (valid.inputs, valid.labels))
    for ours, theirs in zip(read_csv(tmp_path / "small.csv", box=2), valid, strict=True):
        assert torch.equal(ours, theirs)
    with raising(DataError, "line 2", "question", 16, 81):
        read_csv(tmp_path / "small.csv")


def test_written_files_are_in_the_published_shape(tmp_path: Path) -> None:
    inputs, labels = read_csv(GOOD)
    write_csv(tmp_path / "again.csv", "generated-v1", (inputs, labels), [int(line.split(",")[3]) for line in LINES[1:]])
    assert (tmp_path / "again.csv").read_text() == TEXT
    with (tmp_path / "again.csv").open() as file:
        assert next(csv.DictReader(file))["question"] == QUESTION


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The good file with a few bytes replaced, removed or inserted."""
    data = bytearray(TEXT.encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


@settings(max_examples=150, deadline=None)
@given(data=st.one_of(damaged(), st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_file_is_read_or_refused_in_one_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("csv") / "any.csv"
    path.write_bytes(data)
    try:
        inputs, labels = read_csv(path)
    except DataError as error:
        assert str(path) in str(error)
    else:
        assert inputs.shape == labels.shape
        assert ((inputs == 1) | (inputs == labels)).all()
