"""Begins the process: loading the program takes seconds, and Ctrl-C meanwhile ends it in one line; knows no command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

SIGINT_CODE, STDERR = 130, 2
WORDS = b"Interrupted while the program was being loaded; nothing was begun.\n"


def load() -> Callable[[], None]:
    """The command line. Raises ModuleNotFoundError where a package is missing."""
    mine = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started this wants it ignored
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
    """Where a stream was closed (`>&-`, a service without a console) Python has none: what is told goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


def _leave(number: int, frame: FrameType | None) -> None:
    try:
        os.write(STDERR, WORDS)
    finally:  # also where nobody is left to read it
        os._exit(SIGINT_CODE)
