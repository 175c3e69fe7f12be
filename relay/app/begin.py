"""Loads the command line; Ctrl-C during the load, which takes seconds, ends it with one line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

SIGINT_CODE, STDERR = 130, 2
WORDS = b"Interrupted while loading; nothing was begun.\n"


def load() -> Callable[[], None]:
    """The command line's `main`. Raises ModuleNotFoundError if a package is missing."""
    mine = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # otherwise the parent process ignores it
    if mine:
        signal.signal(signal.SIGINT, _leave)
    _open_streams()
    try:
        from relay.app.cli import main
    finally:
        if mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    return main


def main() -> None:
    """Entry point of trm-relay."""
    load()()


def _open_streams() -> None:
    """Replace a closed stream (`>&-`, a service without a console), which Python sets to None, by /dev/null."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


def _leave(number: int, frame: FrameType | None) -> None:
    try:
        os.write(STDERR, WORDS)
    finally:  # also if stderr cannot be written
        os._exit(SIGINT_CODE)
