"""Documents of a text, one at a time, from a file: .txt, .jsonl, .jsonl.xz or .parquet.

Nothing is held but the document at hand. A plain text is one file without marks, so it is cut at blank lines into
documents of some kilobytes: splits are by document.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from relay.torch.faults import DataError, TaskError
from relay.torch.files import readable, whole_path
from storage.packages import install
from storage.regular import is_there

MOST_BYTES = 100 * 10**9
"""A larger text is refused before it is read."""
_LEAST = 2000
"""Bytes of a document that is cut from plain text."""
LONGEST_LINE = 1 << 26
KINDS = (".txt", ".jsonl", ".jsonl.xz", ".parquet")


def check(source: str) -> Path:
    """The path of a text, which exists, has a known form and is not too large. Raises DataError."""
    path = whole_path(source)
    with readable(path):
        if not is_there(path):
            why = "is not a file" if path.exists() else "does not exist"
            raise DataError(f"{path.absolute()} {why}. Check the path in data.train, data.valid or data.test.")
        size = path.stat().st_size
    if not path.name.endswith(KINDS):
        raise DataError(f"{path.name} is no text: it must end with {', '.join(KINDS)}.")
    if size > MOST_BYTES:
        raise DataError(f"{path} has {size / 1e9:,.0f} GB; at most {MOST_BYTES / 1e9:,.0f} GB are read. Take a part.")
    if size == 0:
        raise DataError(f"{path} is empty.")
    return path


def documents(path: Path) -> Iterator[str]:
    """The texts of a file that `check` returned, without empty ones. Raises DataError for a bad line, which it names,
    and at the end of a file without text."""
    empty = True
    for text in _documents(path):
        empty = empty and not text.strip()
        yield text
    if empty:
        raise DataError(f"{path} holds no text, only blank lines or empty documents. Check the path and the file.")


def _documents(path: Path) -> Iterator[str]:
    if path.suffix == ".parquet":
        yield from _of_parquet(path)
        return
    try:
        with readable(path), lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
            lines = _lines(path, file)
            yield from _of_text(path, lines) if path.suffix == ".txt" else _of_json(path, lines)
    except (lzma.LZMAError, EOFError) as error:
        raise DataError(f"{path} is no whole .xz file: {error}.") from error


def _lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    size = 0
    while line := file.readline(LONGEST_LINE):
        size += len(line)
        if len(line) == LONGEST_LINE or size > MOST_BYTES:
            raise DataError(f"{path} holds a line of {LONGEST_LINE:,} bytes or more than {MOST_BYTES:,} bytes of text.")
        yield line


def _decoded(path: Path, number: int, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number:,}: not UTF-8 ({error.reason} at byte {error.start:,}). Save it as UTF-8."
        ) from error


def _of_text(path: Path, lines: Iterator[bytes]) -> Iterator[str]:
    held, size = list[str](), 0
    for number, line in enumerate(lines, 1):
        held.append(_decoded(path, number, line))
        size += len(line)
        if size >= _LEAST and not line.strip():
            yield "".join(held)
            held, size = [], 0
    if "".join(held).strip():
        yield "".join(held)


def _of_json(path: Path, lines: Iterator[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        written = _decoded(path, number, line).removeprefix("\ufeff")
        try:
            found = json.loads(written)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
            raise DataError(f"{path}, line {number:,}: not JSON ({error}).") from error
        text = found.get("text") if isinstance(found, dict) else found
        if not isinstance(text, str):
            raise DataError(f'{path}, line {number:,}: no text. A line is a text, or an object with the key "text".')
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise DataError(f"{path}, line {number:,}: half a surrogate pair, which is no text.")
        if text.strip():
            yield text


def _of_parquet(path: Path) -> Iterator[str]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as missing:
        raise TaskError(f"Reading {path.name} needs pyarrow: `{install('lm')}`.") from missing
    try:
        for batch in parquet.ParquetFile(path).iter_batches(1000, columns=["text"]):
            yield from (text for text in batch.column(0).to_pylist() if text and str.strip(text))
    except (ArrowException, OSError, IndexError, TypeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is no Parquet file with a column `text` of texts: {error}.") from error
