"""Text in the columns of a terminal: cut, folded, in ASCII, or drawn by rich; knows nothing of what it says."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

GAP = 3
"""Blanks and a line between two columns of a table."""
LEAST = 10
"""Columns of a terminal that are left for what people copy."""
PIPE = 10_000
"""Columns where nobody looks at a terminal."""


def cut(text: str, size: int) -> str:
    """At most `size` columns; a ~ stands for what is cut off."""
    return text if cell_len(text) <= size else f"{set_cell_size(text, size - 1).rstrip()}~"


def in_ascii(text: str) -> str:
    """A question mark for each column of what is no ASCII."""
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text)


def fold(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns; words go to the next line, a word too long for one is broken."""
    if cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in text.split(" "):
        for part in [word] if cell_len(word) <= width - 2 else chop_cells(word, width - 2):
            longer = f"{lines[-1]} {part}" if lines[-1] else part
            if cell_len(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(f"  {part}")
    return lines


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    cells: Sequence[str]
    rank: int = 0
    """0 is always shown; of the others those with a low rank are tried first, and left out if they do not fit."""
    right: bool = False
    """Aligned to the right, as numbers are."""
    widest: int = 200
    """Longer cells go on in the next line."""
    whole: bool = False
    """Not folded before all others are: people copy it."""

    @property
    def least(self) -> int:
        """Columns of a terminal in which no word and no number is broken."""
        words = (word for text in (self.title, *self.cells) for word in text.split())
        return self.wanted if self.right else min(self.widest, max(map(cell_len, words), default=0))

    @property
    def wanted(self) -> int:
        """Columns of a terminal in which no cell is folded."""
        return min(self.widest, max(map(cell_len, (self.title, *self.cells))))


def table(columns: Sequence[Column], width: int | None, utf8: bool = True) -> str:
    """A table no wider than `width`; without a width, as in a file or a pipe, one without lines and without folds."""
    if width is None:
        shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
        kept = list(columns)
    else:
        shown = Table(box=box.HORIZONTALS if utf8 else box.ASCII2, pad_edge=False, header_style="")
        kept = _fitting(columns, width)
    room = (width or PIPE) + 1 - sum(column.least + GAP for column in kept)
    for column in kept:
        numbers = column.wanted if column.right and room >= 0 else None
        least = min(column.wanted, max(LEAST, room + column.least)) if column.whole else numbers
        shown.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold",
            max_width=width and column.widest,
            min_width=least,
        )
    for cells in zip(*(column.cells for column in kept), strict=True):
        shown.add_row(*(Text(cell if utf8 else in_ascii(cell)) for cell in cells))
    return drawn(shown, width or PIPE, utf8)


def _fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Those that have room, in their order."""
    kept, room = [column for column in columns if column.rank == 0], width + 1
    room -= sum(column.least + GAP for column in kept)
    for column in sorted((column for column in columns if column.rank), key=lambda column: column.rank):
        if column.wanted + GAP <= room:
            kept.append(column)
            room -= column.wanted + GAP
    return [column for column in columns if column in kept]


def drawn(content: RenderableType, width: int, utf8: bool = True) -> str:
    """What rich makes of it, without a colour, a link or blanks at an end."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        highlight=False,
        markup=False,
        color_system=None,
        force_terminal=False,
        safe_box=not utf8,
    )
    console.print(content)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def printed(lines: Iterator[Text], console: Console) -> None:
    """In colours where the console has any."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def plain(lines: Iterator[Text]) -> str:
    """Without a colour."""
    out = io.StringIO()
    printed(lines, Console(file=out, color_system=None, force_terminal=False, width=1000))
    return out.getvalue().rstrip("\n")
