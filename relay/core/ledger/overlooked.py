"""Finds a commit that slots which were passed over hold and that nothing keeps (P4); appends nothing.

Whoever passed over them may have lied about what it read, or a listing hid the checkpoint from it. Sessions that went
on from there would leave the step behind for good, so a person decides first.
"""

from __future__ import annotations

import re
from itertools import islice

from relay.core.errors import BadData, store_errors
from relay.core.ledger.changes import Refused
from relay.core.ledger.entry import Entry
from relay.core.ledger.frozen import PASSED_OVER, REPAIRED
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.reader import Reader
from relay.core.ledger.state import Checkpoint, RunState

LOOKED_AT = 64
"""Slots that are read again: the newest of those that were passed over."""
_NAMED = re.compile("slots? ([0-9]{1,16})(?:-([0-9]{1,16}))?, sha256 ")
"""Slots in an incident's text (`frozen.passed_over`)."""


class Overlooked(BadData):
    """A slot that was passed over is readable, commits a step beyond the run's, and nothing keeps its checkpoint."""

    def __init__(self, ledger: RunLedger, state: RunState, slot: int, step: int) -> None:
        self.address, self.log, self.run = ledger.store.address, ledger.names.ledger, state.run
        self.slot, self.step, self.now_step = slot, step, state.step
        super().__init__(
            f"{self.address}: slot {slot} of {self.log} commits step {step:,}, and the "
            f"run went on from step {state.step:,} as if nobody could read that slot."
        )


def refuse_overlooked(ledger: RunLedger, view: View) -> None:
    """Before a session or a clean-up goes on from a state. Raises Overlooked (65), StorageUnreachable (69)."""
    if found := overlooked(ledger, view):
        raise found


def overlooked(ledger: RunLedger, view: View) -> Overlooked | None:
    """A slot that was passed over, is readable now and commits a step beyond the state; None if there is none such, or
    if its checkpoint is retained or kept, or no file of its epoch goes.

    Reads nothing unless slots were passed over since a person last chose. Raises StorageUnreachable (69).
    """
    reader, state = ledger.chain.reader, view.state
    with store_errors(ledger.store):
        for seq in _passed(reader, view):
            if found := _overlooked(reader, state, seq):
                return Overlooked(ledger, state, seq, found.step)
    return None


def _passed(reader: Reader[RunState], view: View) -> list[int]:
    """The newest slots that entries have passed over since a person last chose a history, newest first."""
    told: list[str] = []
    for incident in view.state.incidents:
        if incident.cause == REPAIRED:
            told.clear()
        elif incident.cause == PASSED_OVER:
            told.append(incident.text)
    slots: set[int] = set()
    for text in told:
        named = _NAMED.match(text)
        span = range(int(named[1]), min(int(named[2] or named[1]) + 1, view.seq)) if named else range(0)
        sizes = reader.junk(span.start - 1, span.stop - 1)
        slots.update(islice((seq for seq in reversed(span) if seq not in sizes), LOOKED_AT))
    return sorted(slots, reverse=True)[:LOOKED_AT]


def _overlooked(reader: Reader[RunState], state: RunState, seq: int) -> Checkpoint | None:
    """The checkpoint beyond the state that the slot commits and nothing keeps, if it is so."""
    entry = reader.slot(seq).entry
    if entry is None or entry.kind != "commit":
        return None
    known = {c.key for c in state.retained} | {r.key for r in state.retired} | {k.key for k in state.kept}
    try:
        head = reader.machine.parse(entry.state).head
    except (Refused, ValueError):
        return None
    if head is None or head.step <= state.step or head.key in known or head.epoch in state.unread:
        return None
    return head if _can_be_written(reader, entry) and reader.own(seq) is not None else None


def _can_be_written(reader: Reader[RunState], entry: Entry) -> bool:
    """Whether a session can have written the entry: it names the bytes of the slot before it, and if they are still
    there and follow from the same base, it cannot have passed over them."""
    before = reader.slot(entry.seq - 1)
    same = before.digest == entry.parent
    if before.entry is None:
        return True
    if entry.base == before.seq:
        return same
    return not same or before.entry.base != entry.base or entry.passed is not None
