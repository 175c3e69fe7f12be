"""Shows lines in a notebook's cell, with progress lines as one moving bar; imports no package."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

MOVES = re.compile(
    r"step [\d,]+/[\d,]+|\w+ step [\d,]+: \d+% of |waiting for |looking whether |process \d+ commits and "
    r"|starting: |restoring|first step, which |evaluating|finishing: "
)
"""Beginnings of progress lines; each replaces the one before."""
STEPS = re.compile(r"step ([\d,]+)/([\d,]+)")


class Handle(Protocol):
    """Result of IPython's `display(..., display_id=True)`."""

    def update(self, shown: Any, *, raw: bool) -> None: ...


class CellView:
    """One cell's output during a command. Outside a notebook every line is printed."""

    def __init__(self, show: Callable[..., Handle | None] | None) -> None:
        """`show` is IPython's `display`; None outside a notebook."""
        self._show = show
        self._handle: Handle | None = None

    def line(self, text: str) -> None:
        """Print it, or move the bar."""
        if self._show is None or not MOVES.match(text):
            print(text, flush=True)
        elif self._handle is None:
            self._handle = self._show(drawn(text), raw=True, display_id=True)
        else:
            self._handle.update(drawn(text), raw=True)


def drawn(text: str) -> dict[str, str]:
    """The line, with a bar if it names a step; by MIME type."""
    found = STEPS.match(text)
    done, total = (int(number.replace(",", "")) for number in found.groups()) if found else (0, 0)
    bar = f'<progress value="{done}" max="{total}" style="width:20em"></progress> ' if total else ""
    return {"text/plain": text, "text/html": f'<div aria-live="off">{bar}<code>{html.escape(text)}</code></div>'}


def page(document: str, height: int) -> dict[str, str]:
    """A whole HTML document in a sandboxed frame of `height` pixels."""
    source = html.escape(document, quote=True)
    style = f"width:100%;height:{height}px;border:0"
    frame = f'<iframe title="Page of the run" sandbox="allow-scripts" style="{style}" srcdoc="{source}"></iframe>'
    return {"text/plain": "The run's page is visible in the notebook only.", "text/html": f"<div>{frame}</div>"}


def displays() -> Callable[..., Any] | None:
    """IPython's `display` inside a kernel, otherwise None."""
    with suppress(ImportError):
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is not None:
            return display
    return None
