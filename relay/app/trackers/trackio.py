"""trackio: writes rows into its SQLite file on this machine (TRACKIO_DIR), without its server."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from relay.app.trackers.base import NOTHING, Mark, keep_mark, read_mark, require
from relay.app.trackers.line import Line, Point

if TYPE_CHECKING:
    from trackio.sqlite_storage import SQLiteStorage


class Trackio:
    """Sink for the trackio project of the same name, with one trackio run for each line."""

    def __init__(self, marks: Path, folder: str | None = None) -> None:
        """`marks`: the mark file of this machine, so that a long run is not written again. `folder`: TRACKIO_DIR."""
        require("trackio")
        from trackio.sqlite_storage import SQLiteStorage

        self._storage: type[SQLiteStorage] = SQLiteStorage
        self._marks, self._folder = marks, folder
        self._line: Line | None = None
        self._step = 0

    def begin(self, line: Line) -> int:
        """Return the mark's slot, only if its step is trackio's newest: the file may have been emptied since."""
        self._line, self._step = line, 0
        mark = read_mark(self._marks)
        if mark is None or (mark.run_id, mark.rewinds) != (line.run_id, line.rewinds):
            return NOTHING
        if self._storage.get_last_step(line.project, run_id=line.key) != mark.step:
            return NOTHING
        self._step = mark.step
        return mark.slot

    def write(self, points: Sequence[Point], slot: int) -> None:
        """Write the points in one database transaction.

        Each row has an id of run, slot and step, which trackio keeps unique, so a row that is written twice exists
        once.
        """
        line = self._line
        assert line is not None, "begin comes first"
        self._storage.bulk_log(
            line.project,
            line.name,
            [dict(point.values) for point in points],
            steps=[point.step for point in points],
            timestamps=[datetime.fromtimestamp(point.at, UTC).isoformat() for point in points],
            config={
                **line.config,
                "_Group": line.run,
                "_Created": datetime.fromtimestamp(line.created, UTC).isoformat(),
            },
            log_ids=[f"{line.key}:{point.slot}:{point.step}" for point in points],
            run_id=line.key,
        )
        self._step = points[-1].step if points else self._step
        keep_mark(self._marks, Mark(run_id=line.run_id, rewinds=line.rewinds, slot=slot, step=self._step))

    def close(self) -> None:
        """Nothing to do: each write is complete."""

    def where(self) -> str:
        """Return the command that opens trackio."""
        folder = f"TRACKIO_DIR={shlex.quote(self._folder)} " if self._folder else ""
        return f"`{folder}trackio show{f' --project {self._line.project}' if self._line else ''}`"
