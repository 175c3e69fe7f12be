"""Checkpoints that a run keeps though its own history did not commit them, as `fork` takes them; writes nothing."""

from __future__ import annotations

from relay.core.checkpoint.manifest import MAX_BYTES, BadManifest, Manifest, decode
from relay.core.checkpoint.restore import Damaged, own_ref
from relay.core.ledger.passed import Kept
from relay.core.ledger.state import Checkpoint, RunState
from storage.base import Missing, Store, TooLong
from storage.evidence import Arrived, settled


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
