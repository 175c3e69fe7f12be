"""The rule for `choose`, by which a person decides which history a run goes on from; part of
relay/core/ledger/rules.py."""

from __future__ import annotations

from relay.core.ledger import keeping
from relay.core.ledger.changes import By, Choose, Refused, with_incident
from relay.core.ledger.frozen import MAX_LEAP, REPAIRED
from relay.core.ledger.passed import Kept
from relay.core.ledger.state import RunState
from relay.core.names import Names


def choose(state: RunState, change: Choose, by: By) -> RunState:
    """The run goes on from `state`. What the other histories committed is kept, and none of their epochs comes again.

    Raises Refused if somebody holds the lease, or the change keeps what the run cannot have committed.
    """
    if state.holder is not None:
        raise Refused("choose: the run is held; the session that holds it has to end first")
    if change.epoch < state.epoch:
        raise Refused(f"choose: epoch {change.epoch} comes before epoch {state.epoch}")
    if change.epoch > highest_epoch(state):
        raise Refused(f"choose: epoch {change.epoch} is more than {MAX_LEAP} beyond epoch {state.next_epoch - 1}")
    for one in change.kept:
        _check(state, one, change.epoch)
    known = {(k.key, k.sha256) for k in change.kept}
    kept = (*(k for k in state.kept if (k.key, k.sha256) not in known), *change.kept)
    state = keeping.keep(with_incident(state, by, REPAIRED, change.why), kept, change.unkept or 0, by)
    return state.model_copy(update={"epoch": change.epoch, "next": None})


def highest_epoch(state: RunState) -> int:
    """The highest that a choice may go on with: after the last number that an epoch can have, there is no lease."""
    return state.next_epoch - 1 + MAX_LEAP


def _check(state: RunState, kept: Kept, epoch: int) -> None:
    if kept.epoch > epoch or not Names(state.project, state.run).is_manifest(kept.manifest, *kept.key):
        raise Refused(f"choose: {kept.manifest!r} is no manifest of step {kept.step} of epoch {kept.epoch}")
