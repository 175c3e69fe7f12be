"""Whether what is shown may move (a file, a pipe or a notebook keeps every frame), and in which letters; shows nothing.

NO_COLOR and FORCE_COLOR decide about colour alone, and rich reads them itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

NOTEBOOKS = ("JPY_PARENT_PID", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")
"""Set in what a notebook's cell starts: by Jupyter in every kernel, by Colab, by Kaggle."""
STILL = ("dumb", "unknown")
"""Kinds of terminal that cannot go back in a line."""


def in_notebook(environ: Mapping[str, str]) -> bool:
    """Whether a notebook keeps what is printed: a cell's commands have a terminal there, of which all is saved."""
    return any(environ.get(name) for name in NOTEBOOKS)


def utf8(encoding: str | None) -> bool:
    """Whether a stream of that encoding carries every character; None: nobody knows."""
    return (encoding or "ascii").lower().replace("-", "") in ("utf8", "utf16", "utf32")


def moves(environ: Mapping[str, str], is_terminal: bool) -> bool:
    """Whether lines may be drawn over: TTY_INTERACTIVE (0, 1) decides, then TTY_COMPATIBLE=0, then what is known."""
    asked = environ.get("TTY_INTERACTIVE")
    if asked in ("0", "1"):
        return asked == "1"
    if environ.get("TTY_COMPATIBLE") == "0" or environ.get("TERM") in STILL or in_notebook(environ):
        return False
    return is_terminal or environ.get("TTY_COMPATIBLE") == "1"


SHOW_CURSOR = "\x1b[?25h"


def put_down(live: Live, console: Console) -> None:
    """Stop it, and show the cursor past rich, which may still hold back what it was interrupted at."""
    with suppress(IndexError):  # between the halves of its start: rich undoes what it had not done
        live.stop()
    if console.is_terminal:
        console.file.write(SHOW_CURSOR)
        console.file.flush()
