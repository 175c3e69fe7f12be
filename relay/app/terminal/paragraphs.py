"""Folds labeled paragraphs for a terminal; never breaks a command, so that users can copy it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from typing import TextIO

NARROWEST, WIDEST = 40, 100
_GLUE = "\x00"
_COMMAND = re.compile(r"\s*(export |bash |python3? \S+\.py |[A-Z_]+=\S+ |notebook\.)")
"""The beginning of a line that users copy."""
_WHOLE = re.compile(r"`[^`]*`|python3? rotate_accounts\.py\b.*", re.MULTILINE)


def columns() -> int | None:
    """Return the width of the terminal on stdout, within bounds; None without a terminal: then nothing is folded."""
    found = terminal_width()
    return None if found is None else max(NARROWEST, min(WIDEST, found))


def terminal_width() -> int | None:
    """Return the columns of the terminal on stdout; None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def folded_for(stream: TextIO, text: str) -> str:
    """Return the text folded at the width of the terminal `stream`; unchanged if `stream` is not a terminal."""
    if not stream.isatty():
        return text
    try:
        width = max(NARROWEST, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return text
    return folded(text, width)


def folded(text: str, width: int) -> str:
    """Return the text with longer lines folded between words, at their own indentation."""
    return "\n".join(_within(line, width) for line in text.split("\n"))


def _within(line: str, width: int) -> str:
    """Fold one line; commands and rows of tables stay whole."""
    keep = len(line) <= width or _COMMAND.match(line) or line.startswith("|")
    text = line.lstrip(" ")
    return line if keep else paragraph("", text, width, indent=len(line) - len(text))


def paragraph(label: str, text: str, width: int | None, indent: int = 5) -> str:
    """Return the label and the folded text; later lines are indented to the start of the text.

    A command in backquotes, or one of this program up to the end of its line, is never broken. Without a width nothing
    is folded.
    """
    lead = f"{label:{indent - 1}} " if indent else ""
    if width is None:
        return lead + text
    glued = _WHOLE.sub(lambda found: found[0].replace(" ", _GLUE), text)
    folded = textwrap.fill(
        glued,
        width,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return folded.replace(_GLUE, " ")
