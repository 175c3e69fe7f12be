"""Solved puzzles as text, step by step: marks distinguish cells, colors only add to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from rich.text import Text

from relay.app.models.puzzles import Cell, ShownPuzzle, blank, cells, document, named, share, solved, stretches, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from relay.app.plots.style import Palette

STYLES = {
    Cell.given: "dim",
    Cell.right: "",
    Cell.found: "bold cyan",
    Cell.wrong: "bold red",
    Cell.changed: "bold magenta",
}
MARKS = {Cell.given: ".", Cell.right: " ", Cell.found: "+", Cell.wrong: "x", Cell.changed: "*"}
"""Marks after the digits of a Sudoku."""
_OTHERWISE = "wrong, and another answer than before"
SUDOKU_LEGEND = ("4. given", "4  right", "4+ right since this step", "4x wrong", f"4* {_OTHERWISE}")
MAZE_LEGEND = ("o right", "+ right since this step", "x wrong", f"* {_OTHERWISE}", ". missing")
WALL, FULL = "#", "█"
GAP, LEAD, NUMBER = 3, 6, 6
"""Columns between grids, before a row of numbers, and of a number."""


@dataclass(frozen=True)
class SolvedPuzzles:
    """Puzzles as the examples of a model (relay.app.models.plugin.Examples)."""

    weights: str
    """'averaged' or 'raw'."""
    puzzles: Sequence[ShownPuzzle]

    def document(self) -> Mapping[str, Any]:
        """The part of relay.examples/1 that holds them."""
        return {"puzzles": [document(one) for one in self.puzzles]}

    def text(self, width: int, utf8: bool) -> Iterator[Text]:
        """Step by step."""
        return page(self.puzzles, width, utf8)

    def figure(self, title: str, colors: Palette) -> Figure:
        """Step by step, as a picture."""
        from relay.app.models.puzzleplot import draw_puzzles  # matplotlib only for drawing

        return draw_puzzles(self.puzzles, title, colors)


def page(puzzles: Sequence[ShownPuzzle], width: int, utf8: bool) -> Iterator[Text]:
    """Line by line; `width` in columns. utf8: draw solid walls."""
    for puzzle in puzzles:
        yield Text(f"Row {puzzle.row}: {verdict(puzzle)}.", style="bold")
        yield from numbers(puzzle, width)
        yield Text()
        yield from beside(grids(puzzle, utf8), width)
    for line in legend(SUDOKU_LEGEND if puzzles[0].box else MAZE_LEGEND, width):
        yield Text(line, style="dim")


def legend(marks: Sequence[str], width: int) -> list[str]:
    """In rows of `width` columns; a mark stays next to its meaning."""
    lines = [marks[0]]
    for mark in marks[1:]:
        longer = f"{lines[-1]}{' ' * GAP}{mark}"
        lines[-1:] = [longer] if len(longer) <= width else [lines[-1], mark]
    return lines


def numbers(puzzle: ShownPuzzle, width: int) -> Iterator[Text]:
    """Wrong cells and the probability of halting, one column a step."""
    fit = max(1, (width - LEAD) // NUMBER)
    steps = list(enumerate(puzzle.attempts, 1))
    for at in range(0, len(steps), fit):
        some = steps[at : at + fit]
        rows = {
            "step": [f"{number}" for number, _ in some],
            "wrong": [f"{one.wrong}" for _, one in some],
            "halt": [share(one.q_halt) for _, one in some],
        }
        for name, values in rows.items():
            yield Text(f"{name:{LEAD}}" + "".join(f"{each:>{NUMBER}}" for each in values))


def grids(puzzle: ShownPuzzle, utf8: bool) -> list[list[Text]]:
    """The question, each answer that differs from the one before, and the solution if it was not found."""
    lines = _sudoku if puzzle.box else _maze
    made = [[Text("question"), *lines(puzzle, puzzle.question, None, utf8)]]
    for stretch in stretches(puzzle):
        kinds = cells(puzzle, stretch[0])
        made.append([Text(named(stretch)), *lines(puzzle, puzzle.attempts[stretch[0] - 1].answer, kinds, utf8)])
    if not solved(puzzle):
        made.append([Text("solution"), *lines(puzzle, puzzle.label, None, utf8)])
    return made


def beside(blocks: Sequence[Sequence[Text]], width: int) -> Iterator[Text]:
    """Blocks next to each other, as many as fit, an empty line below each row of blocks."""
    wide = max(len(line.plain) for block in blocks for line in block)
    fit = max(1, (width + GAP) // (wide + GAP))
    for at in range(0, len(blocks), fit):
        for lines in zip_longest(*blocks[at : at + fit], fillvalue=Text()):
            joined = Text()
            for line in lines:
                joined.append_text(line).append(" " * (wide + GAP - len(line.plain)))
            joined.rstrip()
            yield joined
        yield Text()


def _sudoku(puzzle: ShownPuzzle, grid: str, kinds: Sequence[Cell] | None, utf8: bool) -> Iterator[Text]:
    """Two columns a cell, lines between boxes."""
    side, box = puzzle.side, puzzle.box
    for row in range(side):
        line = Text()
        for column in range(side):
            cell = row * side + column
            kind = kinds[cell] if kinds else None
            line.append(grid[cell] + (MARKS[kind] if kind else " "), STYLES[kind] if kind else "")
            if column % box == box - 1 and column < side - 1:
                line.append("| ")
        yield line
        if row % box == box - 1 and row < side - 1:
            yield Text("+-".join(["--" * box] * box))


def _maze(puzzle: ShownPuzzle, grid: str, kinds: Sequence[Cell] | None, utf8: bool) -> Iterator[Text]:
    """One column a cell."""
    for row in range(puzzle.side):
        line = Text()
        for cell in range(row * puzzle.side, (row + 1) * puzzle.side):
            kind = kinds[cell] if kinds else None
            letter = _letter(puzzle, grid[cell], kind)
            line.append(FULL if utf8 and letter == WALL else letter, STYLES[kind] if kind and letter != " " else "")
        yield line


def _letter(puzzle: ShownPuzzle, answer: str, kind: Cell | None) -> str:
    """A maze's cell with its mark."""
    free = blank(puzzle)
    if kind in (Cell.wrong, Cell.changed):
        return "." if answer == free else MARKS[kind]
    return MARKS[kind] if kind is Cell.found and answer != free else answer
