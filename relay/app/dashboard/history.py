"""What a run's commits told, read once from the newest entry back and kept; judges no entry, draws nothing.

An entry counts if the newest state builds on it: each names the valid entry before it, so void ones are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from relay.core.errors import BadData
from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import Commit, Refused, Rewind, parse_change
from relay.core.ledger.entry import Entry
from relay.core.ledger.frozen import SENT_AGAIN
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.sessionreport import MetricsRow, Samples

HASH = 16
"""Digits of a state hash that are kept; the whole one is in the ledger."""


class Told(NamedTuple):
    """Metrics at one step; `at` by the store's clock, `seconds` since the session's lease."""

    step: int
    at: float
    seconds: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Committed:
    """A checkpoint became the head. Times are the store's clock, `seconds` count from the session's lease."""

    slot: int
    step: int
    epoch: int
    at: float
    seconds: float
    state_hash: str
    metrics: Mapping[str, float]
    validation: float | None = None
    """The checkpoint's score (`Checkpoint.metric`)."""
    samples: Samples | None = None
    """Since the commit before; None: not told, as by every commit of the first versions."""
    again: bool = False
    """Whether it was damaged in the store and came back from a machine that had a copy."""

    def rows(self) -> list[Told]:
        """What was told up to this commit, oldest first, the last of its own step; steps grow and times do not fall.

        A commit lands when its upload is over, while later steps are told: its own step counts from when it was made.
        """
        found = (
            [Told(row.step, self._when(row), row.at, row.values) for row in self.samples.rows()] if self.samples else []
        )
        own = found.pop() if found and found[-1].step == self.step else None
        at, seconds = (own.at, own.seconds) if own else (self.at, self.seconds)
        return [*found, Told(self.step, at, seconds, self.metrics)]

    def _when(self, row: MetricsRow) -> float:
        return self.at - max(0.0, self.seconds - row.at)


@dataclass(frozen=True)
class WentBack:
    """Damaged checkpoints were left for the one at `step`: what came after it is trained again."""

    slot: int
    step: int


Event = Committed | WentBack


@dataclass
class Commits:
    """The commits and rewinds of one run, as far as they have been read."""

    ledger: RunLedger
    unreadable: int = 0
    """Entries that no longer are what was written; the curves lack them."""
    _found: dict[int, Event] = field(default_factory=dict)
    _spans: list[tuple[int, int]] = field(default_factory=list)
    """(next slot to read, slot that ends it): newest last."""
    _top: int = -1

    @property
    def unread(self) -> int:
        """Slots that may still tell something."""
        return sum(max(0, cursor - floor) for cursor, floor in self._spans)

    @property
    def events(self) -> list[Event]:
        """Oldest first."""
        return [self._found[slot] for slot in sorted(self._found)]

    def read(self, view: View, more: Callable[[], bool]) -> None:
        """Read what is new and then what is old, while `more()`; the next call goes on. Raises as `entries` does."""
        if view.entry.seq > self._top:
            self._spans.append((view.entry.seq, self._top))
            self._top = view.entry.seq
        while self._spans and more():
            cursor, floor = self._spans[-1]
            if cursor > floor:
                self._spans[-1] = (self._before(cursor), floor)  # what it raises leaves the slot to the next call
            else:
                self._spans.pop()

    def _before(self, slot: int) -> int:
        """Keep what the slot tells: the slot that it builds on."""
        try:
            (found,) = self.ledger.entries(slot, slot + 1)
        except BadData:
            entry = None
        else:
            entry = found.entry
        if entry is None:
            self.unreadable += 1
            return slot - 1
        if (event := event_of(entry)) is not None:
            self._found[slot] = event
        return entry.base


def event_of(entry: Entry) -> Event | None:
    """None for what changes no curve."""
    if entry.kind not in ("commit", "rewind"):
        return None
    try:
        change = parse_change(entry.kind, entry.change)
    except Refused:
        return None
    if isinstance(change, Commit):
        made = change.checkpoint
        told = made.state_hash[:HASH]
        where = (entry.seq, made.step, made.epoch, entry.at, change.seconds, told)
        return Committed(*where, change.metrics, made.metric, change.samples, change.why == SENT_AGAIN)
    assert isinstance(change, Rewind), dumps(entry.change)
    return WentBack(entry.seq, change.to[0])
