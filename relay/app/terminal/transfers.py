"""Shows the progress and speed of a long transfer: bars on a terminal, otherwise plain lines at intervals."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from relay.app.messages.wording import duration, size
from relay.app.terminal.terminal import moves
from relay.core.clock import Runtime
from relay.core.events import Transfer

LONG_S = 3.0
"""Seconds; a shorter transfer gets no line."""
EVERY_S = 15.0
"""Seconds between plain lines."""

Count = Callable[[int], None]
Doing = Literal["sending", "fetching"]


def titled(doing: Doing, step: int) -> str:
    """Return the title of a transfer."""
    return f"{doing} step {step:,}"


class Meter:
    """Counts transferred bytes and the time since the start."""

    def __init__(self, what: str, total: int, runtime: Runtime) -> None:
        self._what, self._total, self._runtime = what, total, runtime
        self._began = runtime.monotonic()
        self._done = 0

    def add(self, count: int) -> float:
        """Add bytes; returns seconds since the start. Bytes that are sent again count again, up to the total."""
        self._done = min(self._total, self._done + count)
        return self._runtime.monotonic() - self._began

    @property
    def over(self) -> bool:
        """Whether all bytes are transferred."""
        return self._done >= self._total

    def text(self) -> str:
        """Return `sending step 500: 45% of 85.0 MB, 1.2 MB/s, 40 s left`."""
        spent = max(self._runtime.monotonic() - self._began, 1e-6)
        pace = self._done / spent
        left = f", {duration((self._total - self._done) / pace)} left" if 0 < self._done < self._total else ""
        share = 100 * self._done // max(1, self._total)
        return f"{self._what}: {share}% of {size(self._total)}, {size(pace)}/s{left}"


def lines(tell: Callable[[str], None], runtime: Runtime) -> Transfer:
    """Return a Transfer that prints plain lines; none before `LONG_S`, so a short transfer prints nothing."""

    return lambda doing, step, total: in_lines(titled(doing, step), total, tell, runtime)


def in_lines(what: str, total: int, tell: Callable[[str], None], runtime: Runtime) -> Count:
    """Return a counter of one transfer that prints plain lines, as `lines`."""
    meter, told = Meter(what, total, runtime), [-EVERY_S]

    def count(more: int) -> None:
        spent = meter.add(more)
        if spent >= LONG_S and spent - told[0] >= EVERY_S:
            told[0] = spent
            tell(meter.text())

    return count


def through(transfer: Callable[[str], None], runtime: Runtime) -> Transfer:
    """Return a Transfer into a session's display, which decides when to show it; sends an empty text at the end."""

    return lambda doing, step, total: counted(titled(doing, step), total, transfer, runtime)


def counted(what: str, total: int, transfer: Callable[[str], None], runtime: Runtime) -> Count:
    """Return a counter of one transfer into a session's display, as `through`."""
    meter = Meter(what, total, runtime)

    def count(more: int) -> None:
        if meter.add(more) >= LONG_S:
            transfer("" if meter.over else meter.text())

    return count


class Moving:
    """Bars at the bottom of a terminal, one for each transfer, removed at the end. A context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(compact=True),
            console=console or Console(stderr=True),
            transient=True,
            expand=False,
        )
        self._shown = False

    def __call__(self, doing: Doing, step: int, total: int) -> Count:
        """Begin a transfer, as `Transfer`."""
        return self.begin(titled(doing, step), total)

    def begin(self, what: str, total: int) -> Count:
        """Begin a transfer under any title."""
        task = self._bars.add_task(what, total=total)
        if not self._shown:
            self._shown = True
            self._bars.start()
        return lambda count: self._advance(task, count, total)

    def _advance(self, task: TaskID, count: int, total: int) -> None:
        self._bars.advance(task, count)
        if self._bars.tasks[task].completed >= total:
            self._bars.update(task, completed=total)

    def __enter__(self) -> Moving:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


@contextmanager
def showing(tell: Callable[[str], None], runtime: Runtime) -> Iterator[Transfer]:
    """Yield bars on a terminal, otherwise plain lines."""
    if moves(os.environ, sys.stderr.isatty()):
        with Moving() as bars:
            yield bars
    else:
        yield lines(tell, runtime)


@contextmanager
def downloading(tell: Callable[[str], None], runtime: Runtime) -> Iterator[Callable[[str, int], Count]]:
    """Yield the same for downloads of data, by name and bytes."""
    if moves(os.environ, sys.stderr.isatty()):
        with Moving() as bars:
            yield lambda name, total: bars.begin(f"fetching {name}", total)
    else:
        yield lambda name, total: in_lines(f"fetching {name}", total, tell, runtime)
