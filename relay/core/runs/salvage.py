"""What can still be read of a run whose ledger has lost an entry: enough to fork from, never enough to write on.

A hole stops every session (I1). But each entry carries the whole small state, and each checkpoint it names is proved
by its own hashes, so the newest intact entries still lead to every checkpoint that the run retained.
"""

from __future__ import annotations

from relay.core.errors import BadData, store_errors
from relay.core.ledger.canonical import dumps
from relay.core.ledger.chain import JUDGED
from relay.core.ledger.changes import Genesis
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.reader import Point
from relay.core.ledger.state import RunState
from storage.slots import listed

PARTS = 17
"""Stretches between holes that are looked at, the newest first: a stray file beyond the newest entry is one too."""


class SettingsDamaged(BadData):
    """The entry with the settings that a run was begun with is damaged."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(f"{address}: {name}, which holds the settings that the run was begun with, is damaged.")
        self.address, self.name = address, name


def salvage(ledger: RunLedger) -> View | None:
    """The state after the newest slots that hold an entry, judged from the oldest intact one that no hole parts from
    them.

    None if nothing intact is there. Raises StorageUnreachable (69), NewerFormat (78).
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
    """Whether the settings that a fork goes by are there. Raises StorageUnreachable (69)."""
    try:
        pinned_config(ledger)
    except BadData:
        return False
    return True


def _oldest_intact(ledger: RunLedger, tail: int) -> Point[RunState] | None:
    """Downwards from the tail to the first hole, JUDGED slots at most."""
    found = None
    for seq in range(tail, max(-1, tail - JUDGED), -1):
        try:
            found = ledger.chain.reader.claimed(seq) or found
        except BadData:
            break
    return found
