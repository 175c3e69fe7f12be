"""Runs a trm-relay command for a notebook's cell, prints its lines, and forwards Ctrl-C; imports no package."""

from __future__ import annotations

import html
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol

from relay.core.clock import Runtime
from relay.core.lease.children import forwarding

MOVES = re.compile(
    r"step [\d,]+/[\d,]+|\w+ step [\d,]+: \d+% of |waiting for |looking whether |process \d+ commits and "
    r"|starting: |restoring|first step, which |evaluating|finishing: "
)
"""The beginning of a line that the next such line replaces."""
STEPS = re.compile(r"step ([\d,]+)/([\d,]+)")


class Handle(Protocol):
    """The result of IPython's `display(..., display_id=True)`."""

    def update(self, shown: Any, *, raw: bool) -> None: ...


class CellView:
    """One cell's output while a command runs. Outside a notebook every line is printed."""

    def __init__(self, show: Callable[..., Handle | None] | None) -> None:
        """`show`: IPython's `display`; None outside a notebook."""
        self._show = show
        self._handle: Handle | None = None

    def line(self, text: str) -> None:
        """Print the line, or update the bar."""
        if self._show is None or not MOVES.match(text):
            print(text, flush=True)
        elif self._handle is None:
            self._handle = self._show(drawn(text), raw=True, display_id=True)
        else:
            self._handle.update(drawn(text), raw=True)


def drawn(text: str) -> dict[str, str]:
    """Return {MIME type: the line, with a bar if it contains a step}."""
    found = STEPS.match(text)
    done, total = (int(number.replace(",", "")) for number in found.groups()) if found else (0, 0)
    bar = f'<progress value="{done}" max="{total}" style="width:20em"></progress> ' if total else ""
    return {"text/plain": text, "text/html": f'<div aria-live="off">{bar}<code>{html.escape(text)}</code></div>'}


def page(document: str, height: int) -> dict[str, str]:
    """Return {MIME type: a whole HTML file inside the cell}, in a sandbox apart from the notebook."""
    source = html.escape(document, quote=True)
    style = f"width:100%;height:{height}px;border:0"
    frame = f'<iframe title="The run, as a page" sandbox="allow-scripts" style="{style}" srcdoc="{source}"></iframe>'
    return {"text/plain": "The run, as a page: it shows in the notebook.", "text/html": f"<div>{frame}</div>"}


def displays() -> Callable[..., Any] | None:
    """Return IPython's `display` inside a kernel, otherwise None."""
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
        """Yield complete lines since the last call; with `last` also an unfinished one."""
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
    """Run a command to its end. Returns (exit code, or 128 + N for signal N; standard output with `document`, or "").

    The command writes to files, not to a pipe, so it survives a restart of the kernel and can be attached to again.

    `line` gets each line of standard error and, without `document`, of standard output. Raises OSError if the command
    cannot start.
    """
    with TemporaryFile() as out, TemporaryFile() as err:
        stdout: IO[Any] = out if document else err
        tail = Tail(err)
        with forwarding([signal.SIGINT], lambda child, number: os.killpg(child.pid, number)) as started:
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
