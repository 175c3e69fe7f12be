"""Wraps stdout and stderr: masks secrets in all output.

If the reader goes away, a session continues; other commands exit with an error.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from relay.core.errors import BadConfig

LOG = logging.getLogger("relay.streams")
LOG.addHandler(logging.NullHandler())  # no output without a session's log
STANDARD = (1, 2)


class Unwritable(BadConfig):
    """The output of a command that exists to show it cannot be written."""


class Stream:
    """One stream. The first failed write is reported to `lost`; that text and all later ones are dropped.

    `mask` hides the secrets in every text: also those that libraries print, and the tracebacks of threads.
    """

    def __init__(
        self, name: str, inner: TextIO, lost: Callable[[str, Exception], None], mask: Callable[[str], str] = str
    ) -> None:
        self._name, self._inner, self._lost, self._mask = name, inner, lost, mask
        self._gone = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def masked(self, text: str) -> str:
        """Return the text with its secrets hidden, as `write` writes it."""
        return self._mask(text)

    def write(self, text: str) -> int:
        """Write `text`; returns its length, also if it was dropped."""
        self._try(lambda: self._put(text))
        return len(text)

    def flush(self) -> None:
        """Flush the wrapped stream."""
        self._try(self._inner.flush)

    def _put(self, text: str) -> None:
        text = self.masked(text)
        try:
            self._inner.write(text)
        except UnicodeEncodeError as error:  # a missing letter is escaped, so that the stream stays usable
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
    """Wraps both streams while a command runs, and handles failed writes."""

    def __init__(self) -> None:
        self.advisory = True
        """Whether what is written is for whoever cares: then nothing ends for want of a reader."""
        self.mask: Callable[[str], str] = str
        """Hides the secrets in a text before it is written."""
        self._notes: list[str] = []

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Wrap stdout and stderr of this process for the length of the block."""
        before = sys.stdout, sys.stderr
        mine = tuple(
            cast(TextIO, Stream(name, stream, self._lost, lambda text: self.mask(text)))
            for name, stream in zip(("stdout", "stderr"), before, strict=True)
        )
        sys.stdout, sys.stderr = mine
        try:
            yield
        finally:
            for stream in mine:
                stream.flush()
            sys.stdout = before[0] if sys.stdout is mine[0] else sys.stdout
            sys.stderr = before[1] if sys.stderr is mine[1] else sys.stderr

    @contextmanager
    def unmasked(self) -> Iterator[None]:
        """For text without secrets that looks as if it had some: the address of a sign-in page."""
        before, self.mask = self.mask, str
        try:
            yield
        finally:
            self.mask = before

    @contextmanager
    def needed(self) -> Iterator[None]:
        """For a command that shows something: a failed write raises Unwritable (78), or BrokenPipeError if the reader
        closed the pipe. A session sets `advisory` again."""
        self.advisory = False
        try:
            yield
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            self.advisory = True

    def record(self) -> None:
        """Write earlier failures to the session's log, which is now open."""
        for note in self._notes:
            LOG.warning(note)

    def _lost(self, name: str, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if self.advisory:
            note = f"Nothing more can be written to {name} ({reason}); all else goes on."
            self._notes.append(note)
            LOG.warning(note)
            if name == "stdout":  # never from stderr to stdout, where a program reads the document
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
    """Return whether a signal was ending the process while this write restored the terminal. It keeps its exit code."""
    while (cause := error.__context__) is not None:
        if isinstance(cause, SystemExit | KeyboardInterrupt):
            return True
        error = cause
    return False


def _divert(stream: TextIO) -> None:
    """Send buffered output to /dev/null; otherwise the interpreter fails to flush it at exit and returns 120."""
    with suppress(OSError, ValueError):
        number = stream.fileno()
        if number in STANDARD:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            if nowhere != number:
                os.close(nowhere)
            stream.flush()
