"""Brings a tracker up to date with a run's ledger: each step of the current line once; starts no thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from relay.app.dashboard.curves import fold
from relay.app.dashboard.history import CommitEvent, Commits, RewindEvent
from relay.app.trackers.base import NOTHING, Mark, Sink, keep_mark, public, read_mark
from relay.app.trackers.line import Line, Point, points_of
from relay.core.ledger.ledger import RunLedger, View
from relay.core.workload import Measures

BATCH = 2_000
"""Points per write."""


@dataclass
class Feed:
    """Feeds one run to one tracker; not thread-safe."""

    ledger: RunLedger
    memory: Path
    """A file on this machine with the number of rewinds up to a slot. With it a session does not read the whole ledger
    again at its start."""
    measures: Measures
    go_on: Callable[[], bool] = lambda: True
    details: bool = False
    """Whether trackers get everything that sessions measured of themselves."""
    told: int = 0
    """Points written."""
    _commits: Commits = field(init=False)
    _base: Mark | None = field(init=False, default=None)
    _line: Line | None = field(init=False, default=None)
    _slot: int = field(init=False, default=NOTHING)

    def __post_init__(self) -> None:
        self._commits = Commits(self.ledger)

    def update(self, sink: Sink) -> None:
        """Write the points of the ledger that the tracker lacks. Raises RelayError, StoreError and the tracker's own
        errors; the next call continues from there."""
        view = self.ledger.read()
        if self._line is None:
            self._start_from(view)
        self._commits.read(view, self.go_on)
        if self._commits.unread:
            return
        rewinds = self._rewinds()
        if self._line is None or self._line.rewinds != rewinds:
            self._begin(sink, view, rewinds)
        if self._slot < self._known_to or self._came_back():
            self._read_all(view)
        if self._commits.unread:
            return
        self._hand_over(sink, view.entry.seq)
        keep_mark(
            self.memory, Mark(run_id=view.state.run_id, rewinds=rewinds, slot=view.entry.seq, step=view.state.step)
        )

    @property
    def _known_to(self) -> int:
        """Slot up to which the ledger is not read, because the tracker should have it."""
        return self._base.slot if self._base else NOTHING

    def _start_from(self, view: View) -> None:
        mark = read_mark(self.memory)
        if mark and mark.run_id == view.state.run_id and mark.slot <= view.entry.seq:
            self._base = mark
            self._commits = Commits(self.ledger, _top=mark.slot)

    def _rewinds(self) -> int:
        return (self._base.rewinds if self._base else 0) + len(self._went_back())

    def _went_back(self) -> list[int]:
        """Return the slots of the rewinds read so far."""
        return [event.slot for event in self._commits.events if isinstance(event, RewindEvent)]

    def _came_back(self) -> bool:
        """Return whether a copy restored commits whose points may be in entries that were not read."""
        return self._base is not None and any(
            isinstance(one, CommitEvent) and one.again for one in self._commits.events
        )

    def _begin(self, sink: Sink, view: View, rewinds: int) -> None:
        state = view.state
        config = public(self.ledger.genesis().config)
        assert isinstance(config, dict)
        began = max(self._went_back(), default=NOTHING)
        line = Line(state.project, state.run, state.run_id, rewinds, config, state.created, began)
        self._slot = sink.begin(line)
        self._line = line

    def _read_all(self, view: View) -> None:
        """Read from the first entry: the tracker has less than this machine remembers, or it begins another line."""
        self._base, self._commits = None, Commits(self.ledger)
        self._commits.read(view, self.go_on)

    def _hand_over(self, sink: Sink, newest: int) -> None:
        standing, _ = fold(self._commits.events)
        batch: list[Point] = []
        for slot, told in groupby((one for one in standing if one.slot > self._slot), key=lambda one: one.slot):
            batch.extend(point for commit in told for point in points_of(commit, self.measures, self.details))
            if len(batch) >= BATCH:
                self._write(sink, batch, slot)
                batch = []
        if batch or self._slot < newest:
            self._write(sink, batch, newest)

    def _write(self, sink: Sink, points: list[Point], slot: int) -> None:
        sink.write(points, slot)
        self._slot = slot
        self.told += len(points)
