"""Stands before stdout and stderr: a session goes on without whoever reads it, another command says so and ends."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from relay.core.errors import BadConfig

LOG = logging.getLogger("relay.streams")
LOG.addHandler(logging.NullHandler())  # without a session's log it is told nowhere else
STANDARD = (1, 2)


class Unwritable(BadConfig):
    """A command's output does not arrive, and the output is what the command is for."""


class Stream:
    """One stream. The first text that it cannot take is reported to `lost`; that and all that follows is dropped."""

    def __init__(self, name: str, inner: TextIO, lost: Callable[[str, Exception], None]) -> None:
        self._name, self._inner, self._lost = name, inner, lost
        self._gone = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, text: str) -> int:
        """As a stream's own."""
        self._try(lambda: self._put(text))
        return len(text)

    def flush(self) -> None:
        """As a stream's own."""
        self._try(self._inner.flush)

    def _put(self, text: str) -> None:
        try:
            self._inner.write(text)
        except UnicodeEncodeError as error:  # a letter that it does not have is no reason to write nothing more
            self._inner.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))

    def _try(self, act: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            act()
        except (OSError, ValueError) as error:
            self._gone = True
            _divert(self._inner)
            self._lost(self._name, error)


class Streams:
    """Both, while a command runs, and what becomes of a text that cannot be written."""

    def __init__(self) -> None:
        self.advisory = True
        """Whether what is written is for whoever cares: then nothing ends for want of a reader."""
        self._notes: list[str] = []

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Everything that this process writes goes by here."""
        before = sys.stdout, sys.stderr
        mine = tuple(cast(TextIO, Stream(n, s, self._lost)) for n, s in zip(("stdout", "stderr"), before, strict=True))
        sys.stdout, sys.stderr = mine
        try:
            yield
        finally:
            for stream in mine:
                stream.flush()
            sys.stdout = before[0] if sys.stdout is mine[0] else sys.stdout
            sys.stderr = before[1] if sys.stderr is mine[1] else sys.stderr

    @contextmanager
    def needed(self) -> Iterator[None]:
        """A command that shows something ends where it cannot: raises Unwritable (78), or BrokenPipeError where the
        reader has seen enough. A session sets `advisory` again."""
        self.advisory = False
        try:
            yield
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            self.advisory = True

    def record(self) -> None:
        """A session's log is open: what was lost before that belongs there too."""
        for note in self._notes:
            LOG.warning(note)

    def _lost(self, name: str, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if self.advisory:
            note = f"Nothing more can be written to {name} ({reason}); all else goes on."
            self._notes.append(note)
            LOG.warning(note)
            if name == "stdout":  # not the other way round: a program reads the document there
                print(note, file=sys.stderr, flush=True)
            return
        if _ends_already(error):
            return
        if isinstance(error, BrokenPipeError):
            raise error
        raise Unwritable(
            f"The output could not be written to {name}: {reason}. Make room there or send it elsewhere. Whatever "
            f"else the command does may be done already."
        ) from error


def _ends_already(error: BaseException) -> bool:
    """Whether a signal's end was under way, and this was to put the terminal right: the end keeps its code."""
    while (cause := error.__context__) is not None:
        if isinstance(cause, SystemExit | KeyboardInterrupt):
            return True
        error = cause
    return False


def _divert(stream: TextIO) -> None:
    """What is still held back goes nowhere, else the interpreter fails over it at its end and exits with 120."""
    with suppress(OSError, ValueError):
        number = stream.fileno()
        if number in STANDARD:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            if nowhere != number:
                os.close(nowhere)
            stream.flush()
