"""The rules of Sudoku on batches of grids, and files in the Sudoku-Extreme shape, checked and read as token arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from relay.torch.faults import DataError
from relay.torch.files import replacing
from trm.data.csvrows import BAD, HEADER, Row, parse, reading, require, rows


def units(cells: int) -> Tensor:
    """int64 (3 * side, side): the cells of each row, column and box of a grid with side^2 = cells."""
    side = math.isqrt(cells)
    box = math.isqrt(side)
    rows = torch.arange(cells).view(side, side)
    boxes = rows.view(box, box, box, box).transpose(1, 2).reshape(side, side)
    return torch.cat((rows, rows.T, boxes))


def solved(grids: Tensor) -> Tensor:
    """bool (N,): each row, column and box of the digit grids (N, cells) holds 1..side once.

    `side` powers of two add up to 2^1 + ... + 2^side only if they are all different.
    """
    side = math.isqrt(grids.shape[1])
    powers = torch.pow(2, grids.to(torch.int16))
    sums = torch.stack([powers[:, unit].sum(dim=1, dtype=torch.int16) for unit in units(grids.shape[1])])
    good: Tensor = (sums == 2 ** (side + 1) - 2).all(dim=0)
    return good


def agrees(puzzles: Tensor, grids: Tensor) -> Tensor:
    """bool (N,): no given of the puzzles (N, cells; 0 = blank) contradicts the grid of the same row."""
    return ((puzzles == 0) | (puzzles == grids)).all(dim=1)


_CHUNK = 20_000


def write_csv(path: Path, source: str, tokens: tuple[Tensor, Tensor], ratings: Sequence[int] | None = None) -> None:
    """Write the result of `read_csv` in its format, whole or not at all.

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
    ignored. A question has one character a cell, '.' or '0' for a blank. Raises DataError, with the line, for any
    other content, for an answer that breaks a rule of Sudoku, and for one that contradicts its question.
    """
    inputs, labels = [], []
    with reading(path):
        found = rows(path, box**4)
        while chunk := list(islice(found, _CHUNK)):
            questions, answers = _digits(path, chunk, box)
            inputs.append(questions + 1)
            labels.append(answers + 1)
    if not inputs:
        raise DataError(f"{path} has only a header. Add puzzles below '{HEADER}'.")
    return torch.cat(inputs), torch.cat(labels)


def _digits(path: Path, chunk: list[Row], box: int) -> tuple[Tensor, Tensor]:
    """Checked digits of questions (0 = blank) and answers, both uint8 (len(chunk), box^4)."""
    side = box * box
    digits = {str(digit): digit for digit in range(1, side + 1)}
    questions = parse([row.question for row in chunk], digits | {".": 0, "0": 0})
    answers = parse([row.answer for row in chunk], digits)
    require(path, chunk, (questions != BAD).all(dim=1), f"the question has a character other than '.' and 0-{side}")
    require(path, chunk, (answers != BAD).all(dim=1), f"the answer has a character other than 1-{side}")
    require(path, chunk, solved(answers), "the answer repeats a digit in a row, column or box")
    require(path, chunk, agrees(questions, answers), "the answer contradicts a given digit of the question")
    return questions, answers
