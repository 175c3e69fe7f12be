"""The judge of runs that are put away: an archived run takes nothing, a deleted one nothing ever again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.actor import Actor

if TYPE_CHECKING:
    from tests.simulation.oracle import Oracle, Run

DAY_S = 86400.0


class RestJudge:
    """Judges the entries of kinds `archive`, `unarchive` and `delete`, and the entries after them."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.require = oracle, oracle.require
        self.archived_at: dict[str, float] = {}
        """By run: when it was seen archived, in store time."""
        self.ended: set[tuple[str, int]] = set()
        """Runs and epochs whose session an archive has ended."""

    def entry(self, run: Run, body: dict[str, Any], by: Actor) -> None:
        """One more entry of a run that has begun."""
        kind, before, now = body["kind"], run.state, body["state"]
        self.require(before.get("deleted") is None, f"0013: {kind} after {run.name} was deleted")
        resting = before.get("archived") is not None
        self.require(not resting or kind in ("unarchive", "delete"), f"0013: {kind} while {run.name} is archived")
        self.require(resting == (kind in ("unarchive", "delete")), f"0013: {kind} of a run that is not archived")
        if kind == "archive":
            self._archive(run, now, by)
        elif kind == "delete":
            self._delete(run, now)

    def _archive(self, run: Run, now: dict[str, Any], by: Actor) -> None:
        self.oracle.ledger.taken_over(run.state.get("holder"), run, by)
        self.archived_at[run.name] = self.oracle.store_now
        self.require(now["holder"] is None, "0013: somebody still holds an archived run")
        if holder := run.state.get("holder"):
            self.ended.add((run.name, holder["epoch"]))

    def _delete(self, run: Run, now: dict[str, Any]) -> None:
        waited = self.oracle.store_now - self.archived_at[run.name]
        jumped = self.oracle.sky.jumped_since(0.0)
        self.require(waited >= DAY_S or jumped, f"0013: {run.name} was deleted {waited:.0f} s after it was archived")
        self.require(now["head"] is None and not now["retained"], "0013: a deleted run retains something")
