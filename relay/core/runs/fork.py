"""Copies a checkpoint, verified, to a new run's own prefix; the fork shares no file with its parent (P7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from relay.core.checkpoint.committer import CommitRecord
from relay.core.checkpoint.local import LocalCheckpoint, LocalFile, LocalFolder
from relay.core.checkpoint.packing import put_manifest
from relay.core.checkpoint.passedover import checkpoint_of
from relay.core.checkpoint.restore import Damaged, DamagedCheckpoint, as_packed, fetch_unheld
from relay.core.clock import Runtime, chance
from relay.core.errors import BadConfig, BadData, store_errors
from relay.core.events import Transfer, unseen
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.changes import Key
from relay.core.ledger.entry import encode
from relay.core.ledger.fields import Kept
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.state import Checkpoint, Origin, RunState
from relay.core.names import TOKEN, Names
from relay.core.workload import Refit, Saved, StepDigest
from storage.base import Exists, Store, TooLong
from storage.retry import put_once
from storage.transfer import file_digest, upload


class ForkTaken(BadConfig):
    """Another fork uses the new run's name."""

    def __init__(self, run: str) -> None:
        super().__init__(
            f"Another fork named {run} was started, from another checkpoint or by another version of trm-relay."
        )
        self.run = run


@dataclass(frozen=True)
class Refitted:
    """Converts the state to another configuration, for a fork that cannot continue with it as it is."""

    refit: Refit
    config_hash: str
    """Hash of the fork's pinned configuration."""


@dataclass(frozen=True)
class Branch:
    """The new run before its first entry: its store, its names and a scratch folder."""

    store: Store
    """Also holds the parent's files."""
    names: Names
    run_id: str
    code_version: str
    scratch: Path
    """A folder on this machine, initially empty."""
    runtime: Runtime
    show: Transfer = unseen
    change: Refitted | None = None
    """None to copy the state as it is."""


def copy_checkpoint(ledger: RunLedger, parent: View, key: Key, branch: Branch) -> tuple[Checkpoint, Origin]:
    """Store a checkpoint of the parent under the new run's names. Returns head (epoch 0) and origin for its genesis.

    `ledger` is the parent's. Raises BadData (65) if the parent does not retain `key` or it is damaged, ForkTaken (78),
    StorageUnreachable (69).
    """
    state, local_folder = parent.state, LocalFolder(branch.scratch)
    checkpoint = state.checkpoint(key)
    if checkpoint is None:
        steps = ", ".join(f"{c.step:,}" for c in state.retained) or "none"
        raise BadData(f"Run {state.run} retains no checkpoint of step {key[0]:,}. It retains steps {steps}.")
    try:
        manifest = fetch_unheld(checkpoint, ledger, state, branch.store, local_folder, branch.show)
        packed = as_packed(state, manifest, checkpoint.base)
        contents = {"manifest": checkpoint.sha256}
        return _copy(parent, packed, local_folder.folder(key), branch, contents, checkpoint.metric)
    finally:
        local_folder.remove(key)


def copy_kept(ledger: RunLedger, parent: View, kept: Kept, branch: Branch) -> tuple[Checkpoint, Origin]:
    """`copy_checkpoint` for one that the run keeps although its own history did not commit it."""
    state = parent.state
    with store_errors(branch.store, f"Step {kept.step:,} of run {state.run} could not be read"):
        try:
            found = [
                checkpoint_of(one, state, branch.store) for one in state.kept if one == kept or one.key == kept.base
            ]
        except Damaged as evidence:
            raise DamagedCheckpoint(state.run, kept.step, str(evidence)) from evidence
    retained = (*found, *state.retained)
    view = replace(parent, state=state.model_copy(update={"retained": retained}))
    return copy_checkpoint(ledger, view, kept.key, branch)


def copy_unsent(
    parent: View, packed: LocalCheckpoint, local_folder: LocalFolder, branch: Branch
) -> tuple[Checkpoint, Origin]:
    """`copy_checkpoint` for one that this machine could not send before its run continued without it (P6).

    Raises ForkTaken (78), StorageUnreachable (69).
    """
    contents = {"unsent": digest(dumps(packed.model_dump(mode="json")))}
    return _copy(parent, packed, local_folder.folder(packed.key), branch, contents)


def put_weights(branch: Branch, packed: LocalCheckpoint, origin: Origin) -> Checkpoint:
    """Store the head of a run that starts from a weights file: `packed`, a step 0 state with its files in `scratch`.

    Raises ForkTaken (78), StorageUnreachable (69).
    """
    with store_errors(branch.store, "The weights could not be stored"):
        _claim(branch, {"weights": origin.entry, "state": packed.state_hash})
        return _store(branch, packed, branch.scratch)


def first_of(
    branch: Branch, saved: Saved, folder: Path, config_hash: str, fingerprint: dict[str, str]
) -> LocalCheckpoint:
    """The saved files in the folder as the branch's first checkpoint. Raises OSError."""
    sizes = {name: file_digest(folder / name) for name in saved.files}
    return LocalCheckpoint(
        project=branch.names.project,
        run=branch.names.run,
        run_id=branch.run_id,
        step=saved.step,
        epoch=0,
        parent=None,
        state_hash=saved.state_hash,
        files=tuple(LocalFile(name=name, size=size, sha256=sha256) for name, (size, sha256) in sizes.items()),
        config_hash=config_hash,
        fingerprint=fingerprint,
        base=(saved.step, 0) if saved.lends else None,
    )


def only_here(local_folder: LocalFolder, state: RunState) -> list[tuple[LocalFolder, LocalCheckpoint]]:
    """Intact checkpoints on this machine that the run does not hold, with their folders; oldest first."""
    held = {c.key for c in state.retained} | {r.key for r in state.retired} | {k.key for k in state.kept}
    mine = (state.run_id, state.config_hash)
    found = [
        (box, packed) for box in (local_folder, local_folder.aside) for packed in box.all() if packed.key not in held
    ]
    intact = ((box, one) for box, one in found if (one.run_id, one.config_hash) == mine and box.intact(one))
    return sorted(intact, key=lambda here: here[1].key)


def _copy(
    parent: View,
    packed: LocalCheckpoint,
    folder: Path,
    branch: Branch,
    contents: Mapping[str, str],
    metric: float | None = None,
) -> tuple[Checkpoint, Origin]:
    """Store a parent's checkpoint from `folder`, converted to the branch's configuration if needed.

    Also raises errors of the conversion.
    """
    state = parent.state
    origin = Origin(
        project=state.project,
        run=state.run,
        entry=digest(encode(parent.entry)),  # the parsed entry, since a bad read may have added bytes
        step=packed.step,
        state_hash=packed.state_hash,
    )
    with store_errors(branch.store, "The checkpoint could not be copied"):
        _claim(branch, contents)
        if branch.change is not None:
            packed, folder = _refitted(branch, branch.change, packed, folder)
            metric = None  # of another configuration's state
        return _store(branch, packed, folder, metric), origin


def _refitted(branch: Branch, change: Refitted, packed: LocalCheckpoint, folder: Path) -> tuple[LocalCheckpoint, Path]:
    """The state converted to the branch's configuration, and its folder."""
    out = branch.scratch / "refitted"
    out.mkdir()
    saved = change.refit(folder, out)
    return first_of(branch, saved, out, change.config_hash, packed.fingerprint), out


def _claim(branch: Branch, contents: Mapping[str, str]) -> None:
    """Claim the new run's name for exactly these contents, so that a fork never overwrites files of another. Raises
    ForkTaken (78).

    The same checkpoint copied by the same program gives the same bytes, so an interrupted fork can be repeated. In
    stores without unique names nothing is ever overwritten, so no claim is needed.
    """
    target, names = branch.store, branch.names
    if not target.unique_names:
        return
    config = {"config": branch.change.config_hash} if branch.change else {}
    mine = dumps({**contents, **config, "code_version": branch.code_version})
    try:
        found = put_once(
            target,
            names.fork,
            mine,
            limit=len(mine),
            sleep=branch.runtime.sleep,
            jitter=partial(chance, branch.runtime),
        )
    except TooLong:
        found = b""
    if found != mine:
        raise ForkTaken(names.run)


def _store(branch: Branch, packed: LocalCheckpoint, folder: Path, metric: float | None = None) -> Checkpoint:
    """Store the files in `folder`, borrowed ones too, and their manifest under the new run's own prefix."""
    try:
        return _stored(branch, packed, folder, metric, "")
    except Exists:  # files of an earlier try there are damaged
        return _stored(branch, packed, folder, metric, branch.run_id[:TOKEN])


def _stored(branch: Branch, packed: LocalCheckpoint, folder: Path, metric: float | None, token: str) -> Checkpoint:
    """Upload to the folder with that token. Raises Exists if it holds other content."""
    names = branch.names
    keys = {file.name: names.checkpoint(packed.step, 0, token) + file.name for file in packed.files}
    sent = branch.show("sending", packed.step, packed.bytes)
    files = upload(branch.store, folder, keys, sent=sent)
    own = {"project": names.project, "run": names.run, "run_id": branch.run_id, "epoch": 0, "parent": None}
    shares_nothing = {"borrowed": (), "base": (packed.step, 0) if packed.base else None}
    mine = packed.model_copy(update=own | shares_nothing)
    promised = packed.next
    following = StepDigest(promised.step, promised.path, promised.digest) if promised else None
    return put_manifest(branch.store, names, CommitRecord(mine, following, metric), files, branch.code_version, token)
