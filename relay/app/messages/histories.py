"""Describes how the histories of a run's ledger diverged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from relay.app.messages.wording import listing
from relay.core.runs.histories import Part


def parting(own: Part, other: Part, decided: bool = False) -> str:
    """A few sentences on how the two histories diverged."""
    first, after = other.seqs[0], other.after
    without = "A person decided that the run continues without" if decided else "The run continues without"
    them = "it" if len(other.seqs) == 1 else "them"
    if first > after + 1:
        passed = slots_text(range(after + 1, first))
        return (
            f"{slots_text(other.seqs).capitalize()} ({doing(other)}) passed over {passed}, which could not be read "
            f"then and can be read now. {without} {them}."
        )
    passing = min((seq for seq in own.seqs if seq > after), default=other.seqs[-1] + 1)
    before, later = [seq for seq in other.seqs if seq < passing], [seq for seq in other.seqs if seq > passing]
    text = f"Slot {passing} passed over {slots_text(before)}, which could not be read then and can be read now."
    if later:
        text += f" {slots_text(later).capitalize()} continued from {slots_text(before)}."
    return f"{text} {without} {them} ({doing(other)})."


def doing(part: Part) -> str:
    """The accounts that wrote the history, and the steps that they trained."""
    who = listing(part.accounts) or "no account"
    return f"{who}, steps {part.from_step:,} to {part.highest_step:,}" if part.commits else who


def slots_text(seqs: Sequence[int] | range) -> str:
    """slot 7; slots 7 to 12; slots 7, 9 and 11"""
    if len(seqs) == 1:
        return f"slot {seqs[0]}"
    together = seqs[-1] - seqs[0] == len(seqs) - 1
    return f"slots {seqs[0]} to {seqs[-1]}" if together else f"slots {listing(map(str, seqs))}"


def row(part: Part) -> dict[str, Any]:
    """One item of `histories` in relay.verify/1 and relay.repair/1."""
    return {
        "name": part.name,
        "after": part.after,
        "slots": list(part.seqs),
        "epochs": list(part.epochs),
        "accounts": list(part.accounts),
        "from_step": part.from_step,
        "to_step": part.state.step,
    }


def ranges(numbers: Iterable[int]) -> str:
    """7, 11-15"""
    runs = (
        [number for _, number in group]
        for _, group in groupby(enumerate(sorted(set(numbers))), lambda one: one[1] - one[0])
    )
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
