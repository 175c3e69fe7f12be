"""Reads the commits and rewinds of a run once, from the newest entry back, and keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from relay.core.errors import BadData
from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import Commit, Noted, Refused, Rewind, parse_change
from relay.core.ledger.entry import Entry
from relay.core.ledger.frozen import NOTE, SENT_AGAIN
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.sessionreport import MetricsRow, Samples

HASH = 16
"""Digits of a state hash that are kept; the ledger has all."""


class Told(NamedTuple):
    """Metrics at one step; `at`: unix seconds by the store's clock, `seconds`: since the session's lease."""

    step: int
    at: float
    seconds: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class CommitEvent:
    """A commit: its checkpoint became the head. `at`: by the store's clock, `seconds`: since the session's lease."""

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
    """Metrics since the previous commit; None if absent, as in every commit of the first versions."""
    again: bool = False
    """Whether the checkpoint was damaged in the store and restored from a machine with a copy."""

    def rows(self) -> list[Told]:
        """Return the metrics up to this commit, oldest first, its own step last; steps grow and times do not fall.

        A commit lands after its upload, when training is further; its own step has the time at which it was trained.
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
class RewindEvent:
    """A rewind: damaged checkpoints were given up for the one at `step`; later steps are trained again."""

    slot: int
    step: int


Event = CommitEvent | RewindEvent


@dataclass(frozen=True)
class NoteEvent:
    """A person's remark (`run --note`). The state keeps only its newest incidents; the ledger has all."""

    slot: int
    at: float
    epoch: int
    step: int
    account: str
    text: str


@dataclass
class Commits:
    """The commits and rewinds of one run, as far as they have been read.

    An entry counts if the newest state builds on it. Each entry names the valid entry before it, so invalid ones are
    never read.
    """

    ledger: RunLedger
    unreadable: int = 0
    """Number of damaged entries, which the curves lack."""
    _found: dict[int, Event] = field(default_factory=dict)
    _notes: dict[int, NoteEvent] = field(default_factory=dict)
    _spans: list[tuple[int, int]] = field(default_factory=list)
    """(next slot to read, slot at which to stop), newest last."""
    _top: int = -1

    @property
    def unread(self) -> int:
        """Number of slots that may still hold commits."""
        return sum(max(0, cursor - floor) for cursor, floor in self._spans)

    @property
    def events(self) -> list[Event]:
        """All that were read, oldest first."""
        return [self._found[slot] for slot in sorted(self._found)]

    @property
    def notes(self) -> list[NoteEvent]:
        """All notes that were read, oldest first."""
        return [self._notes[slot] for slot in sorted(self._notes)]

    def read(self, view: View, more: Callable[[], bool]) -> None:
        """Read new entries, then old ones, while `more()`; the next call continues. Raises as `entries` does."""
        if view.entry.seq > self._top:
            self._spans.append((view.entry.seq, self._top))
            self._top = view.entry.seq
        while self._spans and more():
            cursor, floor = self._spans[-1]
            if cursor > floor:
                self._spans[-1] = (self._before(cursor), floor)  # after an error the next call reads the slot again
            else:
                self._spans.pop()

    def _before(self, slot: int) -> int:
        """Keep the event of one entry; returns the slot that the entry builds on."""
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
        if (note := note_of(entry)) is not None:
            self._notes[slot] = note
        return entry.base


def event_of(entry: Entry) -> Event | None:
    """Return the commit or rewind of an entry; None for other entries."""
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
        return CommitEvent(*where, change.metrics, made.metric, change.samples, change.why == SENT_AGAIN)
    assert isinstance(change, Rewind), dumps(entry.change)
    return RewindEvent(entry.seq, change.to[0])


def note_of(entry: Entry) -> NoteEvent | None:
    """Return the note that an entry records; None for other entries."""
    if entry.kind != "incident":
        return None
    try:
        change = parse_change(entry.kind, entry.change)
    except Refused:
        return None
    if not isinstance(change, Noted) or change.cause != NOTE:
        return None
    return NoteEvent(entry.seq, entry.at, entry.epoch, change.step, entry.account or "", change.text)
