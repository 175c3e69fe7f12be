"""Loads the newest intact checkpoint that a run retains (P7). Deletes and appends nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from relay.core.checkpoint.local import LocalCheckpoint, LocalFile, LocalFolder
from relay.core.checkpoint.manifest import MAX_BYTES, BadManifest, Manifest, decode
from relay.core.errors import BadData, NoRoomHere, store_errors
from relay.core.events import Transfer, unseen
from relay.core.ledger.atrest import refuse_deleted
from relay.core.ledger.changes import Key
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.names import Names
from relay.core.workload import Workload
from storage.base import Corrupt, Missing, QuotaExceeded, Ref, Store, TooLong
from storage.evidence import Arrived, settled
from storage.oserrors import os_errors
from storage.transfer import Wanted, download

# --- Choice of a retained checkpoint --------------------------------------------------------------------------------


class NoCheckpoint(BadData):
    """The run has not committed yet."""

    def __init__(self, run: str) -> None:
        super().__init__(f"Run {run} has no checkpoint yet.")
        self.run = run


class NotRetained(BadData):
    """The run does not retain the requested checkpoint."""

    def __init__(self, run: str, step: int | None, epoch: int | None, retained: tuple[int, ...]) -> None:
        steps = ", ".join(f"{one:,}" for one in retained)
        of = ([f"step {step:,}"] if step is not None else []) + ([f"epoch {epoch}"] if epoch is not None else [])
        super().__init__(f"Run {run} retains no checkpoint of {' and '.join(of)}; it retains {steps}.")
        self.run, self.step, self.epoch, self.retained = run, step, epoch, retained


def choose(state: RunState, step: int | None, epoch: int | None = None) -> Checkpoint:
    """The head, or the newest undamaged retained checkpoint of a step or of an epoch. Raises NotRetained (65) with the
    steps that are retained, NoCheckpoint (65)."""
    refuse_deleted(state)
    if state.head is None:
        raise NoCheckpoint(state.run)
    if step is None and epoch is None:
        return state.head
    found = [c for c in state.undamaged if step in (None, c.step) and epoch in (None, c.epoch)]
    if not found:
        raise NotRetained(state.run, step, epoch, tuple(c.step for c in state.undamaged))
    return found[-1]


def role(state: RunState, checkpoint: Checkpoint) -> str:
    """The role of a checkpoint: newest, best on validation, or another retained one."""
    if state.head and checkpoint.key == state.head.key:
        return "newest checkpoint"
    return "best on validation" if checkpoint.key == state.best else "retained checkpoint"


class Damaged(Exception):
    """Evidence against one checkpoint: wrong bytes in the store, a missing file, or another state.

    One line of store names and fixed phrases, because it may be stored (P4).
    """

    def __init__(self, text: str, file: str = "") -> None:
        """file: key of the damaged file; empty for the manifest."""
        super().__init__(text)
        self.file = file


class Unfit(BadData):
    """This program cannot read a checkpoint whose hashes are all right: no damage, and no reason to go back (P7)."""

    def __init__(self, run: str, checkpoint: Checkpoint, why: str) -> None:
        super().__init__(f"Checkpoint {folder_of(checkpoint)} is intact, but this program cannot continue it: {why}.")
        self.run, self.step, self.epoch, self.why = run, checkpoint.step, checkpoint.epoch, why


class NoneLoads(BadData):
    """Every retained checkpoint of a run is damaged."""

    def __init__(self, project: str, run: str, found: tuple[tuple[Key, str], ...]) -> None:
        super().__init__(f"No retained checkpoint of run {project}/{run} can be loaded.")
        self.project, self.run, self.found = project, run, found


class FaultyMachine(BadData):
    """Loading the same files twice gave two states."""

    def __init__(self, name: str, first: str, second: str) -> None:
        """`name`: of the checkpoint; `first`, `second`: hashes of the states."""
        super().__init__(
            f"This machine read two states from the same files of {name} ({first[:12]}… and {second[:12]}…). "
            f"Its memory or its device is faulty."
        )
        self.name, self.first, self.second = name, first, second


class NotStored(BadData):
    """The requested checkpoint is damaged, or no longer in the store."""


class DamagedCheckpoint(NotStored):
    """The requested checkpoint is damaged."""

    def __init__(self, run: str, step: int, evidence: str, others: tuple[int, ...] | None = None) -> None:
        """`others`: steps of the other retained checkpoints; None: not looked up."""
        super().__init__(f"Step {step:,} of run {run} is damaged: {evidence}.")
        self.run, self.step, self.evidence, self.others = run, step, evidence, others


class RetiredDuringDownload(NotStored):
    """The requested checkpoint was retired during the download, which is not damage."""

    def __init__(self, run: str, step: int, retained: tuple[int, ...]) -> None:
        super().__init__(f"Step {step:,} of run {run} was retired during the download. It is not damaged.")
        self.run, self.step, self.retained = run, step, retained


@dataclass(frozen=True)
class Restored:
    """The loaded checkpoint, and the damaged ones before it (newest first)."""

    checkpoint: Checkpoint
    manifest: Manifest
    damaged: tuple[Key, ...] = ()
    evidence: str = ""


@dataclass(frozen=True)
class Route:
    """Where to fetch checkpoints from and to, and how."""

    store: Store
    names: Names
    local_folder: LocalFolder
    workers: int = 4
    """Parallel transfers."""
    go_on: Callable[[], None] = lambda: None
    """Called after each piece that has arrived; raises to end the download."""
    show: Transfer = unseen


def restore(state: RunState, route: Route, workload: Workload) -> Restored:
    """Load the newest intact checkpoint into the workload.

    Reading another session's checkpoint in full proves that a Missing is not a denied permission, as P7 requires.
    Raises BadData (65) if none is intact: a run that has committed never restarts at 0. Raises StorageUnreachable (69),
    and the errors of the route's `go_on`.
    """
    found: list[tuple[Key, str]] = []
    bad: dict[str, str] = {}
    for checkpoint in reversed(state.undamaged):
        name = folder_of(checkpoint)
        with store_errors(route.store, f"Checkpoint {name} could not be read, which proves no damage"):
            try:
                route.go_on()
                manifest = fetch(checkpoint, state, route, bad)
                load(state.run, workload, route.local_folder.folder(checkpoint.key), checkpoint)
            except Damaged as evidence:
                found.append((checkpoint.key, f"{name}: {evidence}"))
                bad |= {evidence.file: str(evidence)} if evidence.file else {}
                continue
        text = "; ".join(line for _, line in found)
        return Restored(checkpoint, manifest, tuple(key for key, _ in found), text[:500])
    raise NoneLoads(state.project, state.run, tuple(found))


def fetch(checkpoint: Checkpoint, state: RunState, route: Route, bad: Mapping[str, str] | None = None) -> Manifest:
    """Download a checkpoint's files into its folder on this machine, and verify them.

    Every byte is read from the store, even if this machine has a copy. Otherwise only later sessions would notice
    damage in the store. This machine's copy stays until the download is complete. bad: keys of files that this restore
    found damaged, which checkpoints may share, with the evidence. Raises Damaged, or StoreError if nothing is proved.
    """
    store, local_folder = route.store, route.local_folder
    manifest = read_manifest(checkpoint, state, store, route.names)
    for file in manifest.files:
        if bad and file.key in bad:
            raise Damaged(bad[file.key], file.key)
    needed = sum(file.size for file in manifest.files)
    arrived = route.show("fetching", checkpoint.step, needed)

    def piece(count: int) -> None:
        arrived(count)
        route.go_on()

    wanted = [Wanted(own_ref(store, f.key, f.ref), f.name, f.size, f.sha256) for f in manifest.files]
    root = local_folder.root
    with _measuring_room(root, needed), os_errors(root, reading=False, here=True), local_folder.incoming() as incoming:
        try:
            download(store, wanted, incoming, workers=route.workers, progress=piece)
        except (Missing, Corrupt) as error:
            raise _damaged(manifest, error) from error
        local_folder.arrived(as_packed(state, manifest, checkpoint.base), incoming)
    return manifest


@contextmanager
def _measuring_room(folder: Path, needed: int) -> Iterator[None]:
    """If this machine's disk is full, raise NoRoomHere with the bytes that are `needed` in a folder and that are
    free."""
    try:
        yield
    except QuotaExceeded as error:
        there = next((path for path in (folder, *folder.parents) if path.is_dir()), None)
        if not error.here or there is None:
            raise
        cause = error.__cause__
        reason = cause.strerror if isinstance(cause, OSError) else None
        raise NoRoomHere(folder, needed, shutil.disk_usage(there).free, reason or "full") from error


def fetch_unheld(
    checkpoint: Checkpoint,
    ledger: RunLedger,
    state: RunState,
    store: Store,
    local_folder: LocalFolder,
    show: Transfer = unseen,
) -> Manifest:
    """`fetch` without the lease, when another session may retire the checkpoint during the download (P8).

    Raises DamagedCheckpoint or RetiredDuringDownload (65), PolicyRefused (77) if the run was deleted during the
    download, StorageUnreachable (69).
    """
    try:
        with store_errors(store, f"Step {checkpoint.step:,} of run {state.run} could not be read"):
            return fetch(checkpoint, state, Route(store, ledger.names, local_folder, show=show))
    except Damaged as evidence:
        if retained(ledger, checkpoint):
            others = tuple(c.step for c in state.undamaged if c.key != checkpoint.key)
            raise DamagedCheckpoint(state.run, checkpoint.step, str(evidence), others) from evidence
    now = ledger.read().state
    refuse_deleted(now)
    raise RetiredDuringDownload(state.run, checkpoint.step, tuple(c.step for c in now.undamaged))


def retained(ledger: RunLedger, checkpoint: Checkpoint) -> bool:
    """Whether the run still retains or keeps it, by a new read: readers hold no lock (P8).

    If the ledger has lost an entry, nothing can be retired, so the checkpoint is still retained.
    """
    try:
        state = ledger.read().state
        return checkpoint.key in {c.key for c in state.retained} | {k.key for k in state.kept}
    except BadData:
        return True


def read_manifest(checkpoint: Checkpoint, state: RunState, store: Store, names: Names) -> Manifest:
    """The verified manifest of a checkpoint. Raises Damaged, or StoreError if nothing is proved."""
    if not names.is_manifest(checkpoint.manifest, *checkpoint.key):
        raise Damaged("its manifest lies outside its own folder")
    ref = own_ref(store, checkpoint.manifest, checkpoint.ref)

    def read(source: Store, block: int | None) -> Arrived:
        try:
            return Arrived.of(source.get(ref, limit=MAX_BYTES), block)
        except TooLong:
            return Arrived(MAX_BYTES + 1, "unread")

    try:
        found = settled(store, ref, read, lambda arrived: arrived.sha256 == checkpoint.sha256, MAX_BYTES)
    except Missing as error:
        raise Damaged(f"{checkpoint.manifest} is missing") from error
    if found.size > MAX_BYTES:
        raise Damaged(f"{checkpoint.manifest} is longer than a manifest may be")
    if found.sha256 != checkpoint.sha256:
        raise Damaged(
            f"{checkpoint.manifest}, read twice, has SHA-256 {found.sha256[:16]}… and not {checkpoint.sha256[:16]}…"
        )
    try:
        base = state.checkpoint(checkpoint.base) if checkpoint.base else None
        manifest = decode(
            found.data,
            project=state.project,
            run=state.run,
            step=checkpoint.step,
            epoch=checkpoint.epoch,
            folder=checkpoint.folder,
            lender=base.folder if base else None,
        )
    except BadManifest as error:
        raise Damaged(f"{checkpoint.manifest} is no manifest of this checkpoint") from error
    if manifest.state_hash != checkpoint.state_hash:
        raise Damaged("manifest and ledger name different states")
    return manifest


def load(run: str, workload: Workload, folder: Path, checkpoint: Checkpoint) -> None:
    """Load a checkpoint's verified files, and compare the state with the one that the ledger names (P9).

    Raises Damaged if two loads give the same other state: the files are as they were stored, so they were stored wrong
    or forged. Raises Unfit if this program cannot read the files, FaultyMachine if the two loads differ.
    """
    found = _hash_of(run, workload, folder, checkpoint)
    if found == checkpoint.state_hash:
        return
    again = _hash_of(run, workload, folder, checkpoint)
    if again != found:
        raise FaultyMachine(folder_of(checkpoint), found, again)
    raise Damaged(
        f"its files are as they were stored, but hold the state {found[:16]}… and not {checkpoint.state_hash[:16]}…, "
        f"which the ledger names"
    )


def _hash_of(run: str, workload: Workload, folder: Path, checkpoint: Checkpoint) -> str:
    try:
        workload.load(folder)
    except ValueError as error:
        raise Unfit(run, checkpoint, _line(error)) from error
    if workload.step != checkpoint.step:
        raise Unfit(run, checkpoint, f"its files hold step {workload.step}")
    return workload.digest().digest


def folder_of(checkpoint: Checkpoint) -> str:
    """The name of its folder in the store."""
    return checkpoint.folder.rstrip("/").rpartition("/")[2]


def own_ref(store: Store, key: str, ref: str) -> Ref:
    """The Ref to read. Where names are unique it must be the key's own, so that no entry can point elsewhere."""
    if store.unique_names and store.ref(key) != ref:
        raise Damaged(f"{key} is said to lie somewhere else")
    return Ref(ref)


def as_packed(state: RunState, manifest: Manifest, base: Key | None) -> LocalCheckpoint:
    """The description of the downloaded copy on this machine."""
    return LocalCheckpoint(
        project=state.project,
        run=state.run,
        run_id=state.run_id,
        step=manifest.step,
        epoch=manifest.epoch,
        parent=None,
        state_hash=manifest.state_hash,
        files=tuple(LocalFile(name=f.name, size=f.size, sha256=f.sha256) for f in manifest.files),
        config_hash=manifest.config_hash,
        fingerprint=manifest.fingerprint,
        next=manifest.next,
        metrics=manifest.metrics,
        base=base,
        borrowed=manifest.borrowed(),
        committed=True,
    )


def _damaged(manifest: Manifest, error: Missing | Corrupt) -> Damaged:
    """The file's key and a fixed phrase: evidence is stored (P4), and an error's own text may hold addresses."""
    key = next((f.key for f in manifest.files if f.key in str(error) or f.ref in str(error)), "")
    file = key or "one of its files"
    text = f"{file} is missing" if isinstance(error, Missing) else f"{file}, read twice, is not what was stored"
    return Damaged(text, key)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
