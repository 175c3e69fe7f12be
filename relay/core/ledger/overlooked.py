"""Finds a commit in a passed-over slot whose checkpoint is not kept (P4); appends nothing.

The session that passed over the slot may have lied about its reads, or a listing hid the checkpoint from it. If later
sessions continued, the step would be lost for good, so a person decides first.
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
"""Most passed-over slots that are read again: the newest."""
_NAMED = re.compile("slots? ([0-9]{1,16})(?:-([0-9]{1,16}))?, sha256 ")
"""The slots in an incident's text (`frozen.passed_over`)."""


class Overlooked(BadData):
    """A passed-over slot is readable, commits a step beyond the run's, and its checkpoint is not kept."""

    def __init__(self, ledger: RunLedger, state: RunState, slot: int, step: int) -> None:
        self.address, self.log, self.run = ledger.store.address, ledger.names.ledger, state.run
        self.slot, self.step, self.now_step = slot, step, state.step
        super().__init__(
            f"{self.address}: slot {slot} of {self.log} commits step {step:,}, but a session passed over it. The run "
            f"went on and is now at step {state.step:,}."
        )


def refuse_overlooked(ledger: RunLedger, view: View) -> None:
    """Check a state before a session or clean-up continues from it. Raises Overlooked (65), StorageUnreachable (69)."""
    if found := overlooked(ledger, view):
        raise found


def overlooked(ledger: RunLedger, view: View) -> Overlooked | None:
    """A passed-over slot that is readable now and commits a step beyond the state, or None.

    A slot does not count if its checkpoint is retained or kept, or if no file of its epoch may be deleted. Nothing is
    read unless slots were passed over since a person last chose a history. Raises StorageUnreachable (69).
    """
    reader, state = ledger.chain.reader, view.state
    with store_errors(ledger.store):
        for seq in _passed(reader, view):
            if found := _overlooked(reader, state, seq):
                return Overlooked(ledger, state, seq, found.step)
    return None


def _passed(reader: Reader[RunState], view: View) -> list[int]:
    """The newest slots that entries have passed over since a person last chose a history, newest first."""
    texts: list[str] = []
    for incident in view.state.incidents:
        if incident.cause == REPAIRED:
            texts.clear()
        elif incident.cause == PASSED_OVER:
            texts.append(incident.text)
    slots: set[int] = set()
    for text in texts:
        named = _NAMED.match(text)
        span = range(int(named[1]), min(int(named[2] or named[1]) + 1, view.seq)) if named else range(0)
        sizes = reader.junk(span.start - 1, span.stop - 1)
        slots.update(islice((seq for seq in reversed(span) if seq not in sizes), LOOKED_AT))
    return sorted(slots, reverse=True)[:LOOKED_AT]


def _overlooked(reader: Reader[RunState], state: RunState, seq: int) -> Checkpoint | None:
    """The checkpoint of the slot's commit, if it is beyond the state and not kept; otherwise None."""
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
    """Whether a session can have written the entry. It names the bytes of the slot before it; if they are still there
    and follow from the same base, its writer cannot have passed over them."""
    before = reader.slot(entry.seq - 1)
    same = before.digest == entry.parent
    if before.entry is None:
        return True
    if entry.base == before.seq:
        return same
    return not same or before.entry.base != entry.base or entry.passed is not None
