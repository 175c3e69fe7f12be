"""Finds the checkpoints that unreadable slots may have committed, before an entry passes over them (P4, P8)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from relay.core.checkpoint.manifest import MAX_BYTES, BadManifest, Manifest, decode
from relay.core.checkpoint.restore import Damaged, own_ref
from relay.core.errors import store_errors
from relay.core.ledger.canonical import digest
from relay.core.ledger.fields import Kept
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.names import MANIFEST, Names
from storage.base import Missing, Stat, Store, TooLong
from storage.evidence import Arrived, settled

# --- Kept checkpoints, which the run's own history did not commit; `fork` can take them ------------------------------


def checkpoint_of(kept: Kept, state: RunState, store: Store) -> Checkpoint:
    """The checkpoint that a kept manifest describes. Raises Damaged, StoreError."""
    manifest = _manifest(kept, state, store)
    return Checkpoint(
        step=kept.step,
        epoch=kept.epoch,
        manifest=kept.manifest,
        ref=kept.ref,
        sha256=kept.sha256,
        state_hash=manifest.state_hash,
        bytes=sum(file.size for file in manifest.files if manifest.owns(file)),
        next=manifest.next,
        base=kept.base,
    )


def _manifest(kept: Kept, state: RunState, store: Store) -> Manifest:
    ref = own_ref(store, kept.manifest, kept.ref)

    def read(source: Store, block: int | None) -> Arrived:
        return Arrived.of(source.get(ref, limit=MAX_BYTES), block)

    try:
        found = settled(store, ref, read, lambda arrived: arrived.sha256 == kept.sha256, MAX_BYTES)
    except (Missing, TooLong) as error:
        raise Damaged(f"{kept.manifest} is missing or too long") from error
    if found.sha256 != kept.sha256:
        raise Damaged(f"{kept.manifest}, read twice, is not as it was when it was kept")
    lenders = {one.key: one.folder for one in state.kept} | {one.key: one.folder for one in state.retained}
    try:
        return decode(
            found.data,
            project=state.project,
            run=state.run,
            step=kept.step,
            epoch=kept.epoch,
            folder=kept.folder,
            lender=lenders.get(kept.base) if kept.base else None,
        )
    except BadManifest as error:
        raise Damaged(f"{kept.manifest} is no manifest of this checkpoint") from error


def guard(ledger: RunLedger, checkpoints: Store) -> None:
    """Make this ledger keep the checkpoints that slots may have committed before an entry passes over them, and refuse
    (65) if a file shows that one of the slots began an epoch."""
    ledger.chain.prover.keep = keeping(ledger, checkpoints)


def keeping(ledger: RunLedger, checkpoints: Store) -> Callable[[RunState, range], list[Kept]]:
    """The function that `guard` sets. It raises BadData (65) for a file of a later epoch, StorageUnreachable (69)."""

    def keep(state: RunState, slots: range) -> list[Kept]:
        ledger.refuse_later_epochs(state, checkpoints)
        with store_errors(checkpoints, "Cannot find the checkpoints that the unreadable slots committed"):
            found = (_kept(checkpoints, state, stat, slots) for stat in _unknown(ledger, checkpoints, state))
            return sorted((one for one in found if one), key=lambda one: one.key)

    return keep


def _unknown(ledger: RunLedger, checkpoints: Store, state: RunState) -> list[Stat]:
    """Manifests of the newest epoch that the state does not know: no other epoch can have committed in those slots.

    Their step may be below the state's, if one of the slots held a rewind. Raises BadData (65) for a file of a later
    epoch, which an earlier listing may have hidden.
    """
    known = {c.key for c in state.retained} | {r.key for r in state.retired} | {k.key for k in state.kept}
    found = []
    for stat in checkpoints.list(ledger.names.checkpoints):
        place = ledger.names.parse_checkpoint(stat.name)
        if place:
            ledger.refuse_later_epoch((place.epoch, stat.name), state, checkpoints)
        if place and place.file == MANIFEST and place.epoch == state.epoch and place[:2] not in known:
            found.append(stat)
    return found


def _kept(checkpoints: Store, state: RunState, stat: Stat, slots: range) -> Kept | None:
    """The checkpoint that a manifest describes; None if this run cannot have committed it."""
    try:
        data = checkpoints.get(stat.ref, limit=MAX_BYTES)
    except (Missing, TooLong):
        return None
    place = Names(state.project, state.run).parse_checkpoint(stat.name)
    assert place is not None
    folder = stat.name.removesuffix(MANIFEST)
    for lender in (None, *(c for c in state.retained if c.key in state.bases)):
        with suppress(BadManifest):
            decode(
                data,
                project=state.project,
                run=state.run,
                step=place.step,
                epoch=place.epoch,
                folder=folder,
                lender=lender.folder if lender else None,
            )
            return Kept(
                slot=slots[-1],
                step=place.step,
                epoch=place.epoch,
                manifest=stat.name,
                ref=stat.ref,
                sha256=digest(data),
                base=lender.key if lender else None,
            )
    return None
