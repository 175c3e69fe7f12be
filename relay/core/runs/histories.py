"""Compares the histories of a run whose ledger holds more than one. Pure: reads and appends nothing."""

from __future__ import annotations

from dataclasses import dataclass

from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import Commit
from relay.core.ledger.entry import Entry
from relay.core.ledger.histories import Walked
from relay.core.ledger.reader import Slot
from relay.core.ledger.state import Checkpoint, RunState


@dataclass(frozen=True)
class HistoryCommit:
    """A commit of one history."""

    slot: int
    checkpoint: Checkpoint
    account: str


@dataclass(frozen=True)
class Part:
    """One history, from the point where the histories diverged."""

    name: str
    """A letter; A is the history that the run continues."""
    after: int
    """The last shared slot; -1 if they share none."""
    slots: tuple[Slot, ...]
    state: RunState
    """The state at its end."""
    from_step: int
    """Step at the divergence."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(slot.entry for slot in self.slots if slot.entry)

    @property
    def seqs(self) -> tuple[int, ...]:
        """Numbers of its slots."""
        return tuple(slot.seq for slot in self.slots)

    @property
    def commits(self) -> tuple[HistoryCommit, ...]:
        """Oldest first."""
        return tuple(
            HistoryCommit(entry.seq, Commit.model_validate_json(dumps(entry.change)).checkpoint, entry.account or "")
            for entry in self.entries
            if entry.kind == "commit"
        )

    @property
    def epochs(self) -> tuple[int, ...]:
        """Epochs that it started."""
        return tuple(entry.epoch for entry in self.entries if entry.kind == "lease")

    @property
    def accounts(self) -> tuple[str, ...]:
        """Accounts that wrote its entries, in order."""
        return tuple(dict.fromkeys(entry.account for entry in self.entries if entry.account))

    @property
    def highest_step(self) -> int:
        return max((commit.checkpoint.step for commit in self.commits), default=self.from_step)


@dataclass(frozen=True)
class Conflict:
    """Differences of a history from the run's own that a person should know."""

    gone: tuple[HistoryCommit, ...]
    """Commits that the run's own history does not hold."""
    lost: tuple[int, ...]
    """Steps of `gone` beyond the run's current step."""
    epochs: tuple[int, ...]
    """Epochs started in both."""
    keys: tuple[tuple[str, int, int], ...]
    """(manifest, slot in the own history, slot in the other) for names committed in both."""

    def __bool__(self) -> bool:
        """Whether a person should decide."""
        return bool(self.lost or self.epochs or self.keys)


def parted(walked: Walked[RunState]) -> list[Part]:
    """The run's own history first, then the others by their first slot; empty if there is no other."""
    others, state = walked.others, walked.point.state
    if not others or state is None:
        return []
    first = min(others, key=lambda one: one.after)
    own = Part(letter(0), first.after, walked.own, state, _step(first.before))
    rest = (Part(letter(n), one.after, one.slots, one.state, _step(one.before)) for n, one in enumerate(others, 1))
    return [own, *rest]


def _step(state: RunState | None) -> int:
    return state.step if state else 0


def chosen(own: Part, other: Part) -> bool:
    """Whether a person has decided that the run continues without the other history."""
    end = other.slots[-1]
    return any(
        [one["seq"], one["digest"]] == [end.seq, end.digest]
        for entry in own.entries
        if entry.kind == "choose"
        for one in entry.change["others"]
    )


def conflict(own: Part, other: Part) -> Conflict:
    """The conflict of `other` with the run's own history."""
    held = {(one.checkpoint.manifest, one.checkpoint.sha256) for one in own.commits}
    gone = tuple(one for one in other.commits if (one.checkpoint.manifest, one.checkpoint.sha256) not in held)
    named = {one.checkpoint.manifest: one.slot for one in own.commits}
    return Conflict(
        gone,
        lost=tuple(one.checkpoint.step for one in gone if one.checkpoint.step > own.state.step),
        epochs=tuple(sorted(set(own.epochs) & set(other.epochs))),
        keys=tuple(
            (one.checkpoint.manifest, named[one.checkpoint.manifest], one.slot)
            for one in other.commits
            if one.checkpoint.manifest in named
        ),
    )


def letter(number: int) -> str:
    """A, B, …, Z, then A2, B2, …"""
    return chr(ord("A") + number % 26) + (str(number // 26 + 1) if number >= 26 else "")
