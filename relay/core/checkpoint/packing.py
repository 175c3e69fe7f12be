"""Saves a snapshot to a folder on this machine, and writes the manifest of an uploaded one (P6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay.core.checkpoint.committer import CommitRecord, Item
from relay.core.checkpoint.local import LocalCheckpoint, LocalFile, LocalFolder, fsync_folder, hashed
from relay.core.checkpoint.manifest import FileEntry, Manifest, encode
from relay.core.checkpoint.sharedfiles import SharedFiles, local
from relay.core.errors import BadConfig
from relay.core.lease.lease import Lease
from relay.core.ledger.canonical import digest
from relay.core.ledger.sessionreport import finite, on_clock, table
from relay.core.ledger.state import Checkpoint, NextDigest
from relay.core.names import Names
from relay.core.workload import StepDigest
from storage.base import Corrupt, Store
from storage.transfer import Uploaded, create


@dataclass(frozen=True)
class Facts:
    """The configuration and environment that every manifest of this session records."""

    config_hash: str
    fingerprint: Mapping[str, str]
    code_version: str


class ContractBroken(BadConfig):
    """The training loop saved another step than it was asked for, or did not write the files that it named."""

    def __init__(self, step: int, missing: list[str]) -> None:
        super().__init__(f"The training loop saved step {step} without {missing}: it breaks its contract.")
        self.step, self.missing = step, tuple(missing)


def pack(item: Item, lease: Lease, local_folder: LocalFolder, facts: Facts, lending: SharedFiles) -> LocalCheckpoint:
    """Save a snapshot under this epoch to this machine's folder, durably and hashed. Raises OSError."""
    if item.snapshot is None:
        raise ValueError("the snapshot was freed")
    key = (item.snapshot.step, lease.epoch)
    folder = local_folder.fresh(key)
    saved = item.snapshot.save(folder)
    found = {name: hashed(folder / name) for name in saved.files}
    missing = [name for name, seen in found.items() if seen is None]
    if missing or saved.step != key[0]:
        raise ContractBroken(saved.step, missing)
    base, borrowed = lending.borrow(saved, folder)
    if saved.lends:
        base = lending.sending = key
    fsync_folder(folder)
    state = lease.own_state  # a later epoch's head is not what this snapshot was trained from
    packed = LocalCheckpoint(
        project=state.project,
        run=state.run,
        run_id=state.run_id,
        step=key[0],
        epoch=key[1],
        parent=state.head.key if state.head else None,
        state_hash=saved.state_hash,
        files=(*local(borrowed), *(LocalFile(name=n, size=at[0], sha256=at[1]) for n, at in found.items() if at)),
        config_hash=facts.config_hash,
        fingerprint=dict(facts.fingerprint),
        metrics=finite(item.metrics),
        samples=table(on_clock(item.rows, lease.taken_at), state.step, key[0]),
        base=base,
        borrowed=borrowed,
        lends=saved.lends,
    )
    local_folder.seal(packed)
    return packed


def put_manifest(
    store: Store, names: Names, record: CommitRecord, files: list[Uploaded], code_version: str, token: str = ""
) -> Checkpoint:
    """Create and verify the manifest of uploaded files. Returns the checkpoint for the ledger.

    token: of the folder that they are in. Raises Exists if another manifest is there, which stays; Corrupt if the
    uploaded files differ from those that were packed: this machine's disk may have changed them since.
    """
    packed = record.packed
    _refuse_changed(packed, files)
    after = _next(record.next, packed.step)
    data = encode(_manifest(packed, files, after, code_version))
    key = names.manifest(*packed.key, token)
    ref = create(store, key, data)
    return Checkpoint(
        step=packed.step,
        epoch=packed.epoch,
        manifest=key,
        ref=ref,
        sha256=digest(data),
        state_hash=packed.state_hash,
        bytes=packed.sent_bytes + len(data),
        next=after,
        metric=record.metric,
        base=packed.base,
    )


def _refuse_changed(packed: LocalCheckpoint, files: list[Uploaded]) -> None:
    was, sent = {f.name: f.sha256 for f in packed.own}, {f.name: f.sha256 for f in files}
    if changed := sorted(name for name in was if sent.get(name) != was[name]):
        raise Corrupt(
            f"{', '.join(changed)} of step {packed.step:,} changed on this machine's disk after the write. The upload "
            f"is not used. Check that disk; the next commit does not depend on these files."
        )


def _manifest(packed: LocalCheckpoint, files: list[Uploaded], after: NextDigest | None, code_version: str) -> Manifest:
    return Manifest(
        project=packed.project,
        run=packed.run,
        step=packed.step,
        epoch=packed.epoch,
        state_hash=packed.state_hash,
        files=(*entries(files), *packed.borrowed),
        config_hash=packed.config_hash,
        fingerprint=packed.fingerprint,
        code_version=code_version,
        next=after,
        metrics=packed.metrics,
    )


def entries(files: list[Uploaded]) -> tuple[FileEntry, ...]:
    return tuple(FileEntry(name=f.name, key=f.key, ref=f.ref, size=f.size, sha256=f.sha256) for f in files)


def _next(following: StepDigest | None, step: int) -> NextDigest | None:
    if following is None or following.step != step + 1:
        return None
    return NextDigest(step=following.step, path=following.path[:200], digest=following.digest)
