"""TensorBoard: event files in a folder of this machine, one subfolder for each line; knows no ledger.

Files are written with TensorBoard's own writer of records: its writer of files would put the host's name into theirs.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from relay.app.trackers.base import NOTHING, Alone, Mark, SinkOff, read_mark, require, write_mark
from relay.app.trackers.line import Line, Point

MARK, LOCK = "relay.json", "relay.lock"
FILES = "events.out.tfevents.*"


class TensorBoard:
    """The folder PROJECT/RUN below `root`."""

    def __init__(self, root: Path) -> None:
        require("tensorboard")
        self._root, self._alone = root, Alone()
        self._folder = root
        self._line: Line | None = None
        self._step = 0
        self._path: Path | None = None

    def begin(self, line: Line) -> int:
        """Asks the mark beside the files."""
        self._folder, self._line, self._path = self._root / line.project / line.name, line, None
        self._alone.take(self._folder / LOCK)
        mark = read_mark(self._folder / MARK)
        if mark and mark.run_id != line.run_id:
            raise SinkOff(f"{self._folder} shows another run of this name. Empty it, or name another tensorboard_dir.")
        self._step = mark.step if mark else 0
        return mark.slot if mark else NOTHING

    def write(self, points: Sequence[Point], slot: int) -> None:
        """One event for each point, at the store's time; a file is closed after each write, so nothing is left open."""
        assert self._line is not None, "begin comes first"
        if points:
            path, first = self._file(points[0].at)
            with path.open("ab") as file:
                file.write(framed([*first, *map(_event, points)]))
            self._step = points[-1].step
        mark = Mark(run_id=self._line.run_id, rewinds=self._line.rewinds, slot=slot, step=self._step)
        write_mark(self._folder / MARK, mark)

    def close(self) -> None:
        """Nothing is uploaded, so nothing is waited for."""
        self._alone.leave()

    def where(self) -> str:
        """The command that shows it."""
        return f"`tensorboard --logdir {self._root}`"

    def _file(self, at: float) -> tuple[Path, list[bytes]]:
        """This session's file, behind the others by name, which is the order they are read in; and how it begins.

        What older files hold beyond the mark (a kill came before it was written) is told to be dropped.
        """
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        if self._path is not None:
            return self._path, []
        self._folder.mkdir(parents=True, exist_ok=True)
        count = len(list(self._folder.glob(FILES)))
        self._path = self._folder / f"events.out.tfevents.{count + 1:010d}.relay"
        version = Event(wall_time=at, file_version="brain.Event:2")
        start = Event(wall_time=at, step=self._step + 1, session_log=SessionLog(status=SessionLog.START))
        return self._path, [one.SerializeToString() for one in ((version, start) if count else (version,))]


def framed(records: Sequence[bytes]) -> bytes:
    """The records as an event file holds them, in one piece: a write that fails halfway leaves one torn record."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    whole = io.BytesIO()
    writer = RecordWriter(whole)
    for record in records:
        writer.write(record)
    return whole.getvalue()


def _event(point: Point) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
    made: bytes = Event(wall_time=point.at, step=point.step, summary=Summary(value=values)).SerializeToString()
    return made
