"""Colors states and errors on a terminal. A text is complete without colors: a file and a pipe get it unchanged."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TextIO

from rich.console import Console
from rich.text import Text

from relay.app.terminal.streams import Stream
from relay.app.terminal.terminal import in_notebook

BAD, GOOD, NOTABLE = "bold red", "green", "yellow"
SHOUTED = {
    BAD: ("DAMAGED", "HALTED", "Halted", "DELETED", "NOT exact", "BROKEN"),
    NOTABLE: ("LOOK", "ARCHIVED", "NEW", "STRAY"),
}
"""Words for a state that are not words of a sentence, by color."""
STATES = {
    GOOD: ("ok", "ready", "active", "training", "finished", "exact"),
    NOTABLE: ("cooling", "paused", "unconfirmed", "quota_exceeded", "archived"),
    BAD: ("halted", "blocked", "damaged", "unreadable", "deleted"),
}
"""States of a run, an account, a link or a check that are colored only alone in a cell or after a colon."""
_STYLES = {word: style for words in (SHOUTED, STATES) for style, group in words.items() for word in group}
_STATE = re.compile(
    rf"(?<!\S)(?:{'|'.join(word for group in SHOUTED.values() for word in group)})(?=[\s:.,;)]|$)"
    rf"|(?:^|(?<=[:|│║] )|(?<=\|)|(?<=\S  )|(?<=   ))"
    rf"(?:{'|'.join(word for group in STATES.values() for word in group)})(?=[:.,;]|$| *[|│║]|  | \()",
    re.MULTILINE,
)
_SENTENCE = re.compile(r".+?[.!?](?=\s|$)|.+", re.DOTALL)


def with_states(text: str) -> Text:
    """The text with its states in color."""
    made = Text(text)
    for found in _STATE.finditer(text):
        made.stylize(_STYLES[found[0]], *found.span())
    return made


def with_error(text: str) -> Text:
    """The text with its first sentence, which is the fact, in the color of errors."""
    made, first = Text(text), _SENTENCE.match(text)
    if first:
        made.stylize(BAD, *first.span())
    return made


def colored(
    text: str,
    stream: TextIO,
    paint: Callable[[str], Text] = with_states,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """The text for that stream: with colors on a terminal that has them, otherwise unchanged.

    NO_COLOR turns them off, FORCE_COLOR on. A notebook's cells get none: their kernel sets FORCE_COLOR by itself.
    """
    if in_notebook(environ):
        return text
    console = Console(file=stream)
    if console.color_system is None or console.no_color:
        return text
    whole = stream.masked(text) if isinstance(stream, Stream) else text  # a color within a secret would hide it
    with console.capture() as shown:
        console.print(paint(whole), end="", soft_wrap=True, highlight=False, markup=False)
    return shown.get()
