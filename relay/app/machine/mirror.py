"""Writes a session's progress to a file on this machine, which `run --attach` shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from relay.core.clock import Runtime
from relay.core.wholefile import write_whole
from relay.core.workload import Progress

EVERY_S = 1.0
"""Shortest time between two writes of a step without a line."""
LINES = 20
MOST_BYTES = 100_000
LONGEST = 2_000
"""Characters of a line that are kept."""


class Now(BaseModel):
    """The progress of a session."""

    model_config = ConfigDict(frozen=True, strict=True)

    step: int = 0
    target: int = 0
    metrics: Mapping[str, float] = {}
    told: int = 0
    """Lines printed so far."""
    lines: tuple[str, ...] = ()
    """The newest of them."""


class Mirror:
    """Writes one session's progress; nothing without a path. Write errors are ignored: only the view is lost."""

    def __init__(self, runtime: Runtime, path: Path | None) -> None:
        self._runtime, self._path = runtime, path
        self._lock = runtime.lock()
        self._lines = deque[str](maxlen=LINES)
        self._count, self._target = 0, 0
        self._step = Progress(0, {})
        self._written = runtime.monotonic() - EVERY_S

    def aim(self, target: int) -> None:
        """Set the target step."""
        self._target = target

    def step(self, progress: Progress) -> None:
        """Record a step."""
        self._step = progress
        if self._runtime.monotonic() - self._written >= EVERY_S or progress.step >= self._target:
            self._write()

    def tell(self, line: str) -> None:
        """Record a line; callable from any thread."""
        with self._lock:
            self._count += 1
            self._lines.append(line[:LONGEST])
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        self._written = self._runtime.monotonic()
        with self._lock, suppress(OSError):
            now = Now(
                step=self._step.step,
                target=self._target,
                metrics=dict(self._step.metrics),
                told=self._count,
                lines=tuple(self._lines),
            )
            write_whole(self._path, now.model_dump_json().encode())


def read_now(path: Path) -> Now | None:
    """The progress in the file; None if it is missing or unreadable."""
    try:
        with path.open("rb") as file:
            return Now.model_validate_json(file.read(MOST_BYTES))
    except (OSError, ValidationError):
        return None


class Onlooker:
    """Reports new lines and steps of another session."""

    def __init__(
        self,
        path: Path,
        step: Callable[[Progress], None],
        tell: Callable[[str], None],
        aim: Callable[[int], None] = lambda target: None,
    ) -> None:
        self._path, self._step, self._tell, self._aim = path, step, tell, aim
        self._seen = Now()

    def look(self) -> Now | None:
        """Report the lines and the step since the last call."""
        now = read_now(self._path)
        if now is None or now == self._seen:
            return now
        for line in now.lines[max(0, len(now.lines) - (now.told - self._seen.told)) :]:
            self._tell(line)
        if now.target != self._seen.target:
            self._aim(now.target)
        if now.step != self._seen.step:
            self._step(Progress(now.step, now.metrics))
        self._seen = now
        return now
