"""Copies one retained checkpoint under a new run's own prefix, verified; nothing is shared with the parent (P7)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from relay.canonical import dumps
from relay.changes import Key
from relay.checkpoint import Facts, put_manifest
from relay.errors import BadConfig, BadData
from relay.ledger import RunLedger, View
from relay.manifest import Manifest
from relay.names import Names
from relay.outbox import LocalFile, Outbox, Packed
from relay.restore import fetch_unheld
from relay.state import Checkpoint, Origin
from relay.trouble import speaking
from relay.workload import StepDigest
from storage.base import Exists, Store, TooLong
from storage.transfer import upload


def copy_checkpoint(
    ledger: RunLedger,
    parent: View,
    key: Key,
    source: Store,
    target: Store,
    names: Names,
    run_id: str,
    code_version: str,
    scratch: Path,
) -> tuple[Checkpoint, Origin]:
    """The head (epoch 0) and origin for the new run's genesis, its files stored and verified under `names`.

    `ledger` is the parent's, `scratch` a folder on this machine for the download. Raises BadData (65) if the parent
    does not retain `key`, or no longer, or it is damaged; BadConfig (78) if another fork has
    taken the name, StorageUnreachable (69).
    """
    state = parent.state
    checkpoint = state.checkpoint(key)
    if checkpoint is None:
        steps = ", ".join(f"{c.step:,}" for c in state.retained) or "none"
        raise BadData(f"Run {state.run} retains no checkpoint of step {key[0]:,}. It retains steps {steps}.")
    outbox = Outbox(scratch)
    try:
        manifest = fetch_unheld(checkpoint, ledger, state, source, outbox)
        with speaking(target, "The checkpoint could not be copied"):
            _claim(target, names, {"manifest": checkpoint.sha256, "code_version": code_version})
            head = _store(manifest, outbox.folder(key), target, names, run_id, code_version, checkpoint.metric)
    finally:
        outbox.remove(key)
    origin = Origin(
        project=state.project, run=state.run, entry=parent.digest, step=key[0], state_hash=manifest.state_hash
    )
    return head, origin


def _claim(target: Store, names: Names, contents: dict[str, str]) -> None:
    """Take the new run's name for exactly these contents: a fork never overwrites files of another one.

    Whoever copies the same checkpoint with the same program writes the same bytes, so a fork that broke off can be
    made again. Where names are not unique nothing is ever overwritten.
    """
    if not target.unique_names:
        return
    mine = dumps(contents)
    with suppress(Exists):  # another's, or our own re-sent: the stored one counts
        target.put_if_absent(names.fork, mine)
    try:
        found = target.get(target.ref(names.fork), limit=len(mine))
    except TooLong:
        found = b""
    if found != mine:
        raise BadConfig(
            f"Another fork to the name {names.run} was begun, from another checkpoint or by another version of "
            f"trm-relay. Nothing of it was touched. Choose another name with --to."
        )


def _store(
    manifest: Manifest, folder: Path, target: Store, names: Names, run_id: str, code_version: str, metric: float | None
) -> Checkpoint:
    """The files in `folder` under the new run's own prefix, and their manifest."""
    keys = {file.name: names.checkpoint(manifest.step, 0) + file.name for file in manifest.files}
    files = upload(target, folder, keys)
    packed = Packed(
        project=names.project,
        run=names.run,
        run_id=run_id,
        step=manifest.step,
        epoch=0,
        parent=None,
        state_hash=manifest.state_hash,
        files=tuple(LocalFile(name=f.name, size=f.size, sha256=f.sha256) for f in manifest.files),
        config_hash=manifest.config_hash,
        fingerprint=manifest.fingerprint,
        metrics=manifest.metrics,
    )
    facts = Facts(manifest.config_hash, manifest.fingerprint, code_version)
    promised = manifest.next
    following = StepDigest(promised.step, promised.path, promised.digest) if promised else None
    return put_manifest(target, names, packed, files, following, facts, metric)
