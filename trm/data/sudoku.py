"""Sudoku files in the Sudoku-Extreme shape, checked row by row, as token arrays; knows no splits and no training."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import torch
from torch import Tensor

from trm.data import rules
from trm.data.dataset import DataError
from trm.data.files import replacing

HEADER = "source,question,answer,rating"
_CHUNK = 20_000
_MAX_LINE = 100_000
"""Bytes; a row of 9x9 Sudoku has about 200."""
_BAD = 255


class _Row(NamedTuple):
    line: int
    question: str
    answer: str


def write_csv(path: Path, source: str, tokens: tuple[Tensor, Tensor], ratings: Sequence[int] | None = None) -> None:
    """Write what `read_csv` returns so that it reads it back, whole or not at all.

    Raises DataError if the folder cannot be written. Without ratings that column stays empty.
    """
    marks: Sequence[int | str] = ratings or [""] * len(tokens[0])
    with replacing(path) as file:
        file.write(f"{HEADER}\n".encode())
        for question, answer, mark in zip(*tokens, marks, strict=True):
            file.write(f"{source},{_text(question).replace('0', '.')},{_text(answer)},{mark}\n".encode())


def _text(tokens: Tensor) -> str:
    return "".join(str(token - 1) for token in tokens.tolist())


def read_csv(path: Path, box: int = 3) -> tuple[Tensor, Tensor]:
    """(inputs, labels), both uint8 (N, box^4) tokens: blank 1, digit d as d + 1.

    The file (plain or gzip, UTF-8) starts with a header that names at least `question` and `answer`; other columns are
    ignored. A question has one character a cell, '.' or '0' for a blank. Raises DataError, with the line, for anything
    else, for an answer that breaks a rule of Sudoku, and for one that contradicts its question.
    """
    inputs, labels = [], []
    with _reading(path):
        rows = _rows(path, box**4)
        while chunk := list(islice(rows, _CHUNK)):
            questions, answers = _digits(path, chunk, box)
            inputs.append(questions + 1)
            labels.append(answers + 1)
    if not inputs:
        raise DataError(f"{path} holds no puzzles, only a header. Add rows below '{HEADER}'.")
    return torch.cat(inputs), torch.cat(labels)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever the file system or gzip says becomes a DataError."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path} does not exist. Check the path in data.train or data.test.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder. Name the CSV file inside it.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}). Copy or download it again.") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. Check the path and its permissions."
        ) from None


def _rows(path: Path, cells: int) -> Iterator[_Row]:
    """Rows with both fields of the right length; blank lines are skipped."""
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        raw = cast(BinaryIO, gzip.GzipFile(fileobj=plain)) if packed else plain
        reader = csv.reader(_lines(path, raw), strict=True)
        try:
            question, answer = _columns(path, next(reader, None))
            for row in filter(None, reader):
                yield _row(path, reader.line_num, row, question, answer, cells)
        except csv.Error as error:
            raise _bad_row(path, reader.line_num, f"not a CSV row ({error})") from None


def _lines(path: Path, raw: BinaryIO) -> Iterator[str]:
    """Decoded here, line by line, so that the error can name the line; a packed file may hold one without end."""
    for number, line in enumerate(iter(lambda: raw.readline(_MAX_LINE + 1), b""), 1):
        if len(line) > _MAX_LINE:
            raise DataError(f"{path}, line {number}: it has more than {_MAX_LINE} bytes. Is this the right file?")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            what = f"byte {error.start + 1} is not UTF-8"
            raise DataError(f"{path}, line {number}: {what}. Save the file as a UTF-8 CSV.") from None


def _columns(path: Path, header: list[str] | None) -> tuple[int, int]:
    if header is None:
        raise DataError(f"{path} is empty. It must start with the header '{HEADER}' and hold one puzzle a line.")
    names = [name.strip().lower() for name in header]
    missing = [name for name in ("question", "answer") if name not in names]
    if missing:
        what = f"the header names no column '{missing[0]}'"
        raise DataError(f"{path}, line 1: {what}. Make the first line '{HEADER}'.")
    return names.index("question"), names.index("answer")


def _row(path: Path, line: int, row: list[str], question: int, answer: int, cells: int) -> _Row:
    if len(row) <= max(question, answer):
        raise _bad_row(path, line, f"{len(row)} fields, fewer than the header names")
    for name, text in (("question", row[question]), ("answer", row[answer])):
        if len(text) != cells:
            raise _bad_row(path, line, f"the {name} has {len(text)} characters instead of {cells}")
    return _Row(line, row[question], row[answer])


def _digits(path: Path, rows: list[_Row], box: int) -> tuple[Tensor, Tensor]:
    """Checked digits of questions (0 = blank) and answers, both uint8 (len(rows), box^4)."""
    side = box * box
    questions = _parse([row.question for row in rows], side, blanks=".0")
    answers = _parse([row.answer for row in rows], side, blanks="")
    _require(path, rows, (questions != _BAD).all(dim=1), f"the question has a character other than '.' and 0-{side}")
    _require(path, rows, (answers != _BAD).all(dim=1), f"the answer has a character other than 1-{side}")
    _require(path, rows, rules.solved(answers), "the answer repeats a digit in a row, column or box")
    _require(path, rows, rules.agrees(questions, answers), "the answer contradicts a given digit of the question")
    return questions, answers


def _parse(texts: list[str], side: int, blanks: str) -> Tensor:
    """uint8 (N, cells): the digit of each character, 0 for a blank, _BAD for any other."""
    good = dict.fromkeys(map(ord, blanks), 0) | {ord(str(digit)): digit for digit in range(1, side + 1)}
    table = bytes(good.get(code, _BAD) for code in range(256))
    # Characters outside Latin-1 become '?', so that each is one byte, and a bad one.
    digits = "".join(texts).encode("latin-1", errors="replace").translate(table)
    return torch.frombuffer(bytearray(digits), dtype=torch.uint8).view(len(texts), side * side)


def _require(path: Path, rows: list[_Row], good: Tensor, what: str) -> None:
    if not bool(good.all()):
        raise _bad_row(path, rows[int(good.to(torch.uint8).argmin())].line, what)


def _bad_row(path: Path, line: int, what: str) -> DataError:
    return DataError(f"{path}, line {line}: {what}. Correct or remove this row.")
