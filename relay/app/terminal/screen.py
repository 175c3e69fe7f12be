"""Puts a terminal right after what moved on it, also where a signal came amid its drawing; draws nothing."""

from __future__ import annotations

from contextlib import suppress

from rich.console import Console
from rich.live import Live

SHOW_CURSOR = "\x1b[?25h"


def put_down(live: Live, console: Console) -> None:
    """Stop it, and show the cursor past rich, which may still hold back what it was interrupted at."""
    with suppress(IndexError):  # between the halves of its start: rich undoes what it had not done
        live.stop()
    if console.is_terminal:
        console.file.write(SHOW_CURSOR)
        console.file.flush()
