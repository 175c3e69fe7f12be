"""Detects whether output may be redrawn, and its character set."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

NOTEBOOKS = ("JPY_PARENT_PID", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")
"""Variables in the processes of a notebook's cell: set by Jupyter in every kernel, by Colab, by Kaggle."""
STILL = ("dumb", "unknown")
"""Terminals that cannot move the cursor back."""


def in_notebook(environ: Mapping[str, str]) -> bool:
    """Return whether a notebook keeps the output: its cells give commands a terminal and save everything printed."""
    return any(environ.get(name) for name in NOTEBOOKS)


def utf8(encoding: str | None) -> bool:
    """Return whether that encoding has every character; None (unknown) counts as no."""
    return (encoding or "ascii").lower().replace("-", "") in ("utf8", "utf16", "utf32")


def moves(environ: Mapping[str, str], is_terminal: bool) -> bool:
    """Return whether lines may be redrawn; a file, a pipe or a notebook keeps every frame.

    TTY_INTERACTIVE (0, 1) decides, then TTY_COMPATIBLE=0, then the rest of the environment. NO_COLOR and FORCE_COLOR
    affect only color; rich reads them itself.
    """
    asked = environ.get("TTY_INTERACTIVE")
    if asked in ("0", "1"):
        return asked == "1"
    if environ.get("TTY_COMPATIBLE") == "0" or environ.get("TERM") in STILL or in_notebook(environ):
        return False
    return is_terminal or environ.get("TTY_COMPATIBLE") == "1"


SHOW_CURSOR = "\x1b[?25h"


def put_down(live: Live, console: Console) -> None:
    """Stop it and show the cursor. Writes past rich, which may hold back its output after an interrupt."""
    with suppress(IndexError):  # interrupted during start: rich undoes more than it did
        live.stop()
    if console.is_terminal:
        console.file.write(SHOW_CURSOR)
        console.file.flush()
