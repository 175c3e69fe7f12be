"""Fits text into terminal columns: cut, folded, in ASCII, or as a table drawn by rich."""

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
"""Width of the blanks and the line between two columns of a table."""
LEAST = 10
"""Least width of a column that users copy from."""
PIPE = 10_000
"""Width of output that is not a terminal."""


def cut(text: str, size: int) -> str:
    """Return the text cut to at most `size` columns; a ~ marks the cut."""
    return text if cell_len(text) <= size else f"{set_cell_size(text, size - 1).rstrip()}~"


def in_ascii(text: str) -> str:
    """Return the text with a question mark for each column of a non-ASCII character."""
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text)


def fold(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` columns, folded between words; a longer word is broken."""
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
    """0 is always shown. Others are added by ascending rank, if they fit."""
    right: bool = False
    """Aligned to the right, for numbers."""
    widest: int = 200
    """Largest width; longer cells are folded."""
    whole: bool = False
    """Folded last, because users copy it."""

    @property
    def least(self) -> int:
        """Smallest width that breaks no word and no number."""
        words = (word for text in (self.title, *self.cells) for word in text.split())
        return self.wanted if self.right else min(self.widest, max(map(cell_len, words), default=0))

    @property
    def wanted(self) -> int:
        """Smallest width that folds no cell."""
        return min(self.widest, max(map(cell_len, (self.title, *self.cells))))


def table(columns: Sequence[Column], width: int | None, utf8: bool = True) -> str:
    """Return a table no wider than `width`. With None (a file, a pipe) it has no lines and no folds."""
    if width is None:
        shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
        kept = list(columns)
    else:
        shown = Table(box=box.HORIZONTALS if utf8 else box.ASCII2, pad_edge=False, header_style="")
        kept = _fitting(columns, width)
    room = (width or PIPE) + 1 - sum(column.least + GAP for column in kept)
    for column in kept:
        numbers = column.wanted if column.right and room >= 0 else None
        whole = min(column.wanted, room + column.least if room >= 0 else LEAST) if column.whole else None
        shown.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold",
            max_width=width and column.widest,
            min_width=whole or numbers,
            width=whole if room >= 0 else None,  # else rich narrows the widest column, widens it again, crops the last
        )
    for cells in zip(*(column.cells for column in kept), strict=True):
        shown.add_row(*(Text(cell if utf8 else in_ascii(cell)) for cell in cells))
    return drawn(shown, width or PIPE, utf8)


def _fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit, in their order."""
    kept, room = [column for column in columns if column.rank == 0], width + 1
    room -= sum(column.least + GAP for column in kept)
    for column in sorted((column for column in columns if column.rank), key=lambda column: column.rank):
        if column.wanted + GAP <= room:
            kept.append(column)
            room -= column.wanted + GAP
    return [column for column in columns if column in kept]


def drawn(content: RenderableType, width: int, utf8: bool = True) -> str:
    """Return the text that rich renders, without colors, links and trailing blanks."""
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
    """Print styled lines, in color if the console has colors."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def plain(lines: Iterator[Text]) -> str:
    """Return the lines as text without colors."""
    out = io.StringIO()
    printed(lines, Console(file=out, color_system=None, force_terminal=False, width=1000))
    return out.getvalue().rstrip("\n")
