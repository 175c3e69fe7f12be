"""Reads a run whose ledger has lost an entry: enough to fork from it, never to continue it.

A hole stops every session (I1). But each entry holds the complete small state, and hashes prove each checkpoint that it
names. So the newest intact entries still lead to every retained checkpoint.
"""

from __future__ import annotations

from relay.core.errors import BadData, store_errors
from relay.core.ledger.canonical import dumps
from relay.core.ledger.chain import MOST_VALIDATED
from relay.core.ledger.changes import Genesis
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.reader import Point
from relay.core.ledger.state import RunState
from storage.slots import listed

PARTS = 17
"""Stretches between holes that are tried, the newest first. A stray file beyond the newest entry is one too."""


class SettingsDamaged(BadData):
    """The entry with a run's pinned settings is damaged."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(f"{address}: {name} is damaged; it holds the run's pinned settings.")
        self.address, self.name = address, name


def salvage(ledger: RunLedger) -> View | None:
    """The state after the newest readable entries, validated from the oldest intact one without a hole in between.

    None if there is no intact entry. Raises StorageUnreachable (69), NewerFormat (78).
    """
    point = None
    with store_errors(ledger.store):
        seqs = listed(ledger.store, ledger.names.ledger)
        for tail in sorted((seq for seq in seqs if seq + 1 not in seqs), reverse=True)[:PARTS]:
            if start := _oldest_intact(ledger, tail):
                point = ledger.chain.reader.through(start, tail)
                break
    if point is None or point.state is None or point.entry is None:
        return None
    if (point.state.project, point.state.run) != (ledger.names.project, ledger.names.run):
        return None
    return View(point.seq, point.digest, point.state, point.entry, point.damage)


def pinned_config(ledger: RunLedger) -> dict[str, object]:
    """The settings in slot 0. Raises SlotEmpty or SettingsDamaged (65)."""
    with store_errors(ledger.store):
        entry = ledger.chain.reader.slot(0).entry
    if entry is None or entry.kind != "genesis":
        raise SettingsDamaged(ledger.store.address, ledger.chain.log.name(0))
    return dict(Genesis.model_validate_json(dumps(entry.change)).config)


def can_fork(ledger: RunLedger) -> bool:
    """Whether the settings that a fork needs are readable. Raises StorageUnreachable (69)."""
    try:
        pinned_config(ledger)
    except BadData:
        return False
    return True


def _oldest_intact(ledger: RunLedger, tail: int) -> Point[RunState] | None:
    """The oldest intact point between the tail and the first hole below it, at most MOST_VALIDATED slots back."""
    found = None
    for seq in range(tail, max(-1, tail - MOST_VALIDATED), -1):
        try:
            found = ledger.chain.reader.claimed(seq) or found
        except BadData:
            break
    return found
