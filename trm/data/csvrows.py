"""CSV files of puzzles in the Sudoku-Extreme shape, row by row, with the line in each error."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import torch
from torch import Tensor

from relay.torch.faults import DataError
from storage.regular import regular
from storage.wording import counted
from trm.data.lfs import refuse_pointer

HEADER = "source,question,answer,rating"
_MAX_LINE = 100_000
"""Bytes; a row of a 30x30 maze has about 1,900."""


BAD = 255
"""Value of an invalid character."""


class Row(NamedTuple):
    """A puzzle and its solution as text."""

    line: int
    question: str
    answer: str


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns errors of the file system and of gzip into DataErrors, and refuses what may never end."""
    try:
        regular(path)
        yield
    except FileNotFoundError:
        raise DataError(f"{path.absolute()} does not exist. Check the path in data.train or data.test.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder. Name the CSV file inside it.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}). Copy or download it again.") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. Check the path and its permissions."
        ) from None


def rows(path: Path, cells: int | None = None) -> Iterator[Row]:
    """Rows with both fields of the right length (None: the first row's, a square number); blank lines are skipped.

    Raises DataError. Fields are not stripped: a blank may be a cell.
    """
    refuse_pointer(path)
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        raw = cast(BinaryIO, gzip.GzipFile(fileobj=plain)) if packed else plain
        reader = csv.reader(_lines(path, raw), strict=True)
        try:
            question, answer = _columns(path, next(reader, None))
            for row in filter(None, reader):
                cells = cells or _square(path, reader.line_num, row, question)
                yield _row(path, reader.line_num, row, question, answer, cells)
        except csv.Error as error:
            raise bad_row(path, reader.line_num, f"not a CSV row ({error})") from None


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
        what = f"the header lacks column '{missing[0]}'"
        raise DataError(f"{path}, line 1: {what}. Make the first line '{HEADER}'.")
    return names.index("question"), names.index("answer")


def _square(path: Path, line: int, row: list[str], question: int) -> int:
    length = len(row[question]) if len(row) > question else 0
    if length < 4 or math.isqrt(length) ** 2 != length:
        raise bad_row(path, line, f"the question has {counted(length, 'character')}, which is not a square grid")
    return length


def _row(path: Path, line: int, row: list[str], question: int, answer: int, cells: int) -> Row:
    if len(row) <= max(question, answer):
        raise bad_row(path, line, f"{counted(len(row), 'field')}, fewer than the header names")
    for name, text in (("question", row[question]), ("answer", row[answer])):
        if len(text) != cells:
            raise bad_row(path, line, f"the {name} has {counted(len(text), 'character')} instead of {cells}")
    return Row(line, row[question], row[answer])


def require(path: Path, rows: list[Row], good: Tensor, what: str) -> None:
    """Raises DataError with the line of the first row that is not good, bool (len(rows),)."""
    if not bool(good.all()):
        raise bad_row(path, rows[int(good.to(torch.uint8).argmin())].line, what)


def bad_row(path: Path, line: int, what: str) -> DataError:
    """The error for one line, with advice."""
    return DataError(f"{path}, line {line}: {what}. Correct or remove this row.")


def parse(texts: list[str], meaning: dict[str, int]) -> Tensor:
    """uint8 (N, cells): the meaning of each character, BAD for any other. All texts have the same length."""
    good = {ord(character): value for character, value in meaning.items()}
    table = bytes(good.get(code, BAD) for code in range(256))
    # Characters outside Latin-1 become '?', so that each is one byte, and a bad one.
    values = "".join(texts).encode("latin-1", errors="replace").translate(table)
    return torch.frombuffer(bytearray(values), dtype=torch.uint8).view(len(texts), -1)
