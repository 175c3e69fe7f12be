"""Runs a trm-relay command for a notebook's cell, prints its lines, and forwards Ctrl-C; imports no package.

The command writes to files, not to a pipe, so it survives a restart of the kernel and can be attached to again.
"""

from __future__ import annotations

import html
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol

from relay.core.clock import Runtime

MOVES = re.compile(
    r"step [\d,]+/[\d,]+|\w+ step [\d,]+: \d+% of |waiting for |looking whether |process \d+ commits and "
    r"|starting: |restoring|first step, which |evaluating|finishing: "
)
"""How a line begins that the next one of its kind replaces."""
STEPS = re.compile(r"step ([\d,]+)/([\d,]+)")


class Handle(Protocol):
    """What IPython's `display(..., display_id=True)` gives back."""

    def update(self, shown: Any, *, raw: bool) -> None: ...


class CellView:
    """One cell's output while something runs. Outside a notebook every line is printed."""

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
    """The line and, where it names a step, a bar; by MIME type."""
    found = STEPS.match(text)
    done, total = (int(number.replace(",", "")) for number in found.groups()) if found else (0, 0)
    bar = f'<progress value="{done}" max="{total}" style="width:20em"></progress> ' if total else ""
    return {"text/plain": text, "text/html": f'<div aria-live="off">{bar}<code>{html.escape(text)}</code></div>'}


def page(document: str, height: int) -> dict[str, str]:
    """A whole HTML file inside the cell, cut off from the notebook around it."""
    source = html.escape(document, quote=True)
    style = f"width:100%;height:{height}px;border:0"
    frame = f'<iframe title="The run, as a page" sandbox="allow-scripts" style="{style}" srcdoc="{source}"></iframe>'
    return {"text/plain": "The run, as a page: it shows in the notebook.", "text/html": f"<div>{frame}</div>"}


def displays() -> Callable[..., Any] | None:
    """IPython's `display` inside a kernel, else None."""
    with suppress(ImportError):
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is not None:
            return display
    return None


LOOK_S = 0.2
CHUNK = 1 << 16


@dataclass
class Tail:
    """Reads the new lines of a growing file."""

    file: IO[bytes]
    _at: int = 0
    _rest: bytes = field(default=b"", repr=False)

    def lines(self, last: bool = False) -> Iterator[str]:
        """Complete lines since the last call; with `last` also an unfinished one."""
        while data := os.pread(self.file.fileno(), CHUNK, self._at):  # does not move the writer's position
            self._at += len(data)
            *whole, self._rest = (self._rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
        if last and self._rest:
            yield self._rest.decode(errors="replace")


def follow(
    words: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    line: Callable[[str], None],
    runtime: Runtime,
    document: bool = False,
) -> tuple[int, str]:
    """Run a command to its end. Returns (exit code, or 128 + N for signal N; standard output if `document`, else "").

    `line` gets each line of standard error and, without `document`, of standard output. Raises OSError if the command
    cannot start.
    """
    with TemporaryFile() as out, TemporaryFile() as err:
        stdout: IO[Any] = out if document else err
        tail = Tail(err)
        with forwarding_interrupts() as started:
            child = subprocess.Popen(
                words,
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=err,
                start_new_session=True,
            )
            started(child)
            while child.poll() is None:
                for text in tail.lines():
                    line(text)
                runtime.sleep(LOOK_S)
        for text in tail.lines(last=True):
            line(text)
        code = child.returncode if child.returncode >= 0 else 128 - child.returncode
        return code, "\n".join(Tail(out).lines(last=True))


@contextmanager
def forwarding_interrupts() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Forward an interrupt of the kernel exactly once to the command, which has its own process group.

    Yields a function to call with the started command; it also forwards an interrupt that came earlier.
    """
    running: list[subprocess.Popen[bytes]] = []
    early: list[bool] = []

    def interrupt(*_: object) -> None:
        if not running:
            early.append(True)
        elif running[0].poll() is None:
            os.killpg(running[0].pid, signal.SIGINT)

    def started(child: subprocess.Popen[bytes]) -> None:
        running.append(child)
        if early:
            interrupt()

    try:
        before = signal.signal(signal.SIGINT, interrupt)
    except ValueError:  # not the main thread, which gets no interrupts
        yield started
        return
    try:
        yield started
    finally:
        signal.signal(signal.SIGINT, before)
