"""The cost of a kill, from the notes of the killed session and the ledger's durable step (P6)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.processes.field import Note


@dataclass
class Loss:
    """One killed session."""

    steps: int = 0
    seconds: float = 0.0
    """Of training, from the newest durable state to the kill."""
    intervals: list[float] = field(default_factory=list)
    """Seconds between the snapshots of successive commits, the last one under way at the kill included."""
    latencies: list[float] = field(default_factory=list)
    """Seconds from a snapshot to its append."""
    pending: float = 0.0
    """Seconds from the snapshot under way at the kill to the kill."""
    waiting: bool = False
    """Whether the next snapshot was not yet taken at the kill: how long that would have been, nobody knows."""


def loss_of(notes: Iterable[Note], killed_at: float, durable: int) -> Loss:
    """`durable` is the step that the ledger holds after the kill."""
    seen = [note for note in notes if note.at <= killed_at]
    steps = [note for note in seen if note.what == "step"]
    snapshots = {note.number: note.at for note in seen if note.what == "snapshot"}
    landed = {note.number: note.at for note in seen if note.what == "landed-commit" and note.number in snapshots}
    if not steps:
        return Loss()
    began = next((note.at for note in reversed(seen) if note.what == "loaded"), steps[0].at)
    if durable in snapshots:
        landed.setdefault(durable, killed_at)  # the kill came between the append and the note of it
    marks = [began, *(snapshots[step] for step in sorted(landed))]
    under_way = _under_way(snapshots, landed)
    found = Loss(
        steps=max(0, steps[-1].number - max(durable, steps[0].number - 1)),
        intervals=[b - a for a, b in zip(marks, marks[1:] + ([under_way] if under_way else []), strict=False)],
        latencies=[at - snapshots[step] for step, at in landed.items() if at < killed_at],
        pending=killed_at - under_way if under_way else 0.0,
        waiting=under_way is None,
    )
    found.seconds = killed_at - marks[-1] if found.steps else 0.0
    return found


def _under_way(snapshots: dict[int, float], landed: dict[int, float]) -> float | None:
    """When the snapshot was taken whose commit the kill interrupted: the newest one at the last append, otherwise the
    first one after it.
    """
    newest = max(landed, default=0)
    later = sorted(at for step, at in snapshots.items() if step > newest)
    waiting = [at for at in later if at <= landed.get(newest, 0.0)]
    return waiting[-1] if waiting else next(iter(later), None)


@dataclass
class Summary:
    """Many kills."""

    losses: list[Loss] = field(default_factory=list)

    @property
    def interval_s(self) -> float:
        """The effective commit interval: the longest."""
        return max((s for loss in self.losses for s in loss.intervals), default=0.0)

    @property
    def latency_s(self) -> float:
        """The longest time from a snapshot to its append, or to the kill that came first."""
        return max((s for loss in self.losses for s in (*loss.latencies, loss.pending)), default=0.0)

    @property
    def bound_s(self) -> float:
        """P6: work lost is at most this."""
        return self.interval_s + self.latency_s

    def document(self) -> dict[str, Any]:
        """As one JSON object; seconds and steps."""
        lost, steps = [loss.seconds for loss in self.losses], [loss.steps for loss in self.losses]
        intervals = [s for loss in self.losses for s in loss.intervals]
        latencies = [s for loss in self.losses for s in loss.latencies]
        return {
            "kills": len(self.losses),
            "kills_that_cost_work": sum(step > 0 for step in steps),
            "commits": len(latencies),
            "lost_s": _spread(lost),
            "lost_steps": _spread(steps),
            "commit_interval_s": _spread(intervals),
            "snapshot_to_append_s": _spread(latencies),
            "snapshot_to_append_or_kill_s_max": round(self.latency_s, 3),
            "bound_s": round(self.bound_s, 3),
            "bound_of_completed_commits_s": round(max(intervals, default=0) + max(latencies, default=0), 3),
        }

    def line(self) -> str:
        """For people."""
        d = self.document()
        return (
            f"{d['kills']} kills, {d['commits']} commits: work lost median {d['lost_s']['median']} s "
            f"({d['lost_steps']['median']} steps), max {d['lost_s']['max']} s ({d['lost_steps']['max']} steps); "
            f"bound {d['bound_s']} s = commit interval {d['commit_interval_s']['max']} s (median "
            f"{d['commit_interval_s']['median']}) + snapshot to append {d['snapshot_to_append_or_kill_s_max']} s "
            f"(median {d['snapshot_to_append_s']['median']})"
        )


def _spread(values: list[Any]) -> dict[str, float]:
    values = values or [0]
    return {"median": round(statistics.median(values), 3), "max": round(max(values), 3)}
