"""Puts a terminal right after what moved on it, also where that was interrupted as it began; draws nothing."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live


def put_down(live: Live, console: Console) -> None:
    """Stop it. Where a signal came between the halves of its start, rich fails to undo what it had not done."""
    try:
        live.stop()
    except IndexError:
        console.show_cursor(True)
