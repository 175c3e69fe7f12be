"""A relay of toys whose sessions feed trackers, and the values that its ledger requires them to show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from relay.app.dashboard.curves import fold
from relay.app.dashboard.history import CommitEvent, Commits
from relay.app.trackers.base import NOTHING, Sink
from relay.app.trackers.choose import Places
from relay.app.trackers.feed import Feed
from relay.app.trackers.follow import Trackers, Wanted
from relay.app.trackers.line import Line, Point, points_of
from relay.core.ledger.ledger import RunLedger
from tests.app.trackers.readback import Rows
from tests.core.lab import PROJECT, RUN, Lab, Session
from tests.core.toy import MEASURES


def ledger_of(lab: Lab) -> RunLedger:
    """A reader of its own."""
    return RunLedger(lab.shared, PROJECT, RUN, lab.world.process())


def truth(lab: Lab) -> Rows:
    """The valid values, by the ledger: each reported step once, in order."""
    ledger = ledger_of(lab)
    commits = Commits(ledger)
    commits.read(ledger.read(), lambda: True)
    line, _ = fold(commits.events)
    return [(point.step, dict(point.values)) for commit in line for point in points_of(commit, MEASURES)]


def committed(lab: Lab) -> list[CommitEvent]:
    """Every commit there ever was, oldest first."""
    ledger = ledger_of(lab)
    commits = Commits(ledger)
    commits.read(ledger.read(), lambda: True)
    return [event for event in commits.events if isinstance(event, CommitEvent)]


def tracked(lab: Lab, session: Session, places: Places, keys: Sequence[str]) -> Session:
    """The session feeds these trackers."""
    process = session.process
    wanted = places.wanted(keys, lambda: RunLedger(session.store, PROJECT, RUN, process), lambda: MEASURES)
    session.ctx.observer = Trackers(process, wanted, session.told.append)
    return session


def with_sink(lab: Lab, session: Session, sink: Callable[[], Sink], memory: Path) -> Session:
    """The session feeds a tracker of the test's own."""
    process = session.process
    feed = partial(_feed, session, memory)
    wanted = [Wanted("Toy tracker", "toy", lambda own: sink(), feed)]
    session.ctx.observer = Trackers(process, wanted, session.told.append)
    return session


def _feed(session: Session, memory: Path, go_on: Callable[[], bool]) -> Feed:
    return Feed(RunLedger(session.store, PROJECT, RUN, session.process), memory / "toy.json", MEASURES, go_on)


@dataclass
class Kept:
    """A tracker in memory that several sessions share, and that a test can make fail."""

    lines: dict[str, Rows]
    slots: dict[str, int]
    before: Callable[[str], None] = lambda what: None
    """Called with begin, write or close; raises or sleeps to fail there."""
    line: str = ""

    def begin(self, line: Line) -> int:
        self.before("begin")
        self.line = line.name
        return self.slots.get(line.name, NOTHING)

    def write(self, points: Sequence[Point], slot: int) -> None:
        self.before("write")
        self.lines.setdefault(self.line, []).extend((point.step, dict(point.values)) for point in points)
        self.slots[self.line] = slot

    def close(self) -> None:
        self.before("close")

    def where(self) -> str:
        return "memory"
