"""Text in the columns of a terminal: cut, folded, in ASCII, or drawn by rich; knows nothing of what it says."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich import box
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text


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


def table(utf8: bool) -> Table:
    """An empty table with lines between its rows only."""
    return Table(box=box.HORIZONTALS if utf8 else box.ASCII2, pad_edge=False, header_style="")


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
