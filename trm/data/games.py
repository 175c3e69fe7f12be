"""What a task's puzzles are: how they are read, made, checked, augmented and judged; knows no configuration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trm.data import augment, folders, generate9, generate_maze, maze, rules, sudoku
from trm.data.dataset import Augment, DataError, Judge
from trm.data.files import Tell
from trm.data.folders import Part, Puzzles

_CHECKED = 10_000
"""Grids at a time."""


@dataclass(frozen=True)
class Game:
    """One kind of puzzle. Tokens are uint8 (N, cells)."""

    vocab_size: int
    characters: str
    """Of the tokens from 1 on, as the files write them."""
    cells: int | None
    """None: any square."""
    read: Callable[[Path], tuple[Tensor, Tensor]]
    """Of a CSV file; raises DataError."""
    made: Callable[[Path, int, int, Tell], tuple[Tensor, Tensor]]
    """(folder, seed, count, tell): generated, and kept in the folder."""
    sound: Callable[[Tensor, Tensor], Tensor]
    """bool (N,): inputs and labels are a puzzle and its solution."""
    symmetries: Augment
    judge: Judge | None = None
    about: Callable[[Tensor, Tensor], str] = lambda inputs, labels: ""
    """What more people may want to know of these puzzles, ', …' or nothing."""

    def read_folder(self, source: str, which: Part) -> Puzzles:
        """A part of a folder in the reference's layout, its puzzles checked. Raises DataError."""
        folder = Path(source).expanduser()
        about, puzzles = folders.read_folder(folder, which)
        if about.vocab_size != self.vocab_size or (self.cells or about.seq_len) != about.seq_len:
            raise DataError(
                f"{folder} holds rows of {about.seq_len} cells and {about.vocab_size} tokens; this task needs "
                f"{self.cells or 'any number of'} cells and {self.vocab_size} tokens. Set another task or folder."
            )
        parts = [slice(at, at + _CHECKED) for at in range(0, len(puzzles.inputs), _CHECKED)]
        good = torch.cat([self.sound(puzzles.inputs[part], puzzles.labels[part]) for part in parts])
        if not bool(good.all()):
            row = int(good.to(torch.uint8).argmin())
            raise DataError(f"{folder / which}: row {row} is no puzzle with its solution. Build the folder again.")
        return puzzles


def sudoku_game(box: int) -> Game:
    """Sudoku with boxes of box x box cells."""
    return Game(
        vocab_size=box**2 + 2,
        characters=".123456789"[: box**2 + 1],
        cells=box**4,
        read=lambda path: sudoku.read_csv(path, box),
        made=generate9.load,
        sound=_sudoku_sound,
        symmetries=augment.sudoku,
    )


def _about_mazes(inputs: Tensor, labels: Tensor) -> str:
    """Sizes, path lengths, and how many labels the official search finds."""
    lengths, side = maze.lengths(labels), math.isqrt(inputs.shape[1])
    return (
        f", {side}x{side}, paths of {lengths.min()} to {lengths.max()} cells, "
        f"{generate_maze.official(inputs, labels):,} labels with the official tie-break"
    )


MAZE = Game(
    vocab_size=maze.VOCABULARY,
    characters=maze.CHARACTERS,
    cells=None,
    read=maze.read_csv,
    made=generate_maze.load,
    sound=lambda inputs, labels: maze.whole(inputs) & maze.sound(inputs, labels),
    symmetries=augment.dihedral,
    judge=maze.optimal,
    about=_about_mazes,
)


def _sudoku_sound(inputs: Tensor, labels: Tensor) -> Tensor:
    whole = (inputs >= 1).all(1) & (labels >= 2).all(1)
    questions, answers = (tokens.to(torch.int16) - 1 for tokens in (inputs, labels))
    return whole & rules.solved(answers.clamp(min=0)) & rules.agrees(questions, answers)
