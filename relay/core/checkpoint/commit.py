"""One snapshot made durable: folder, files, manifest, then the ledger's `commit` (P6); knows no threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from relay.core.budget import Budget
from relay.core.checkpoint.certify import Verdict
from relay.core.checkpoint.committer import Abandoned, CommitRecord, Item
from relay.core.checkpoint.local import LocalCheckpoint, LocalFolder
from relay.core.checkpoint.manifest import FileEntry
from relay.core.checkpoint.packing import Facts, entries, pack, put_manifest
from relay.core.checkpoint.sharedfiles import SharedFiles
from relay.core.clock import Runtime
from relay.core.errors import OfStore, StorageUnreachable
from relay.core.events import Transfer, unseen
from relay.core.lease.lease import Lease
from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import Commit, Noted
from relay.core.ledger.frozen import RECOMPUTED
from relay.core.ledger.sessionreport import MAX_CHECKPOINTS, MAX_STATE, Samples, finite, on_clock, table, untimed
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.names import TOKEN, Names
from relay.core.workload import StepDigest
from storage.base import Exists, Missing, QuotaExceeded, Ref, Store
from storage.transfer import Uploaded, upload

# --- One snapshot made durable: folder, files, manifest, then the ledger's `commit` (P6) ----------------------------

READY_S, HURRIED_S = 600.0, 3.0
"""Longest wait of an append for metrics and the next step's digest; the second once a signal ends the session."""


@dataclass
class Writer:
    """Everything one commit needs."""

    runtime: Runtime
    store: Store
    names: Names
    local_folder: LocalFolder
    lease: Lease
    budget: Budget
    facts: Facts
    verdict: Verdict
    lending: SharedFiles
    housekeeping: Callable[[bool], None]
    """Runs after each commit, and with True when the store is full; raises nothing."""
    workers: int = 4
    make_room: Callable[[], None] = lambda: None
    """Runs before each append."""
    in_a_hurry: Callable[[], bool] = lambda: False
    """Whether a signal ends the session."""
    show: Transfer = unseen
    backup: tuple[int, int] | None = None
    """Key of the newest committed checkpoint on this machine's disk."""
    commits: int = 0
    made: deque[Checkpoint] = field(default_factory=lambda: deque(maxlen=MAX_CHECKPOINTS))
    """The newest checkpoints of this session, for its report."""
    interval_s: float = 0.0
    """Longest time between two committed snapshots."""
    latency_s: float = 0.0
    """Longest time from a snapshot to its commit."""
    _taken_at: float = field(default=0.0)
    _stored: tuple[tuple[int, int], tuple[FileEntry, ...]] = ((0, 0), ())
    """What the newest upload brought."""

    def __post_init__(self) -> None:
        self._saving = self.runtime.lock()

    def commit(self, item: Item) -> None:
        """Do what is left to do of an item. See relay/core/checkpoint/committer.py for what is raised."""
        try:
            self._commit(item, self.keep(item))
        except (QuotaExceeded, StorageUnreachable) as error:
            if isinstance(error.error if isinstance(error, OfStore) else error, QuotaExceeded):
                self.housekeeping(True)
            raise

    def _commit(self, item: Item, packed: LocalCheckpoint) -> None:
        if item.checkpoint is None:
            packed = item.packed = self._still_borrowed(packed, item.told)
            item.checkpoint = self._stored_free(item, packed)
        _check(item)
        self.make_room()
        began = self.runtime.monotonic()
        self._append(item, item.checkpoint)
        self.budget.measured.add("append", self.runtime.monotonic() - began)

    def _stored_free(self, item: Item, packed: LocalCheckpoint) -> Checkpoint:
        """Stored in a folder that holds nothing else: the plain one, or one with this session's token, though no other
        session may have sent this key (P5)."""
        token = self.lease.session[:TOKEN]
        if item.told is None and self._is_taken(packed):
            item.token = token
        try:
            return self._store(item, packed)
        except Exists:
            if item.token:
                raise
        item.token = token
        return self._store(item, packed)

    def _store(self, item: Item, packed: LocalCheckpoint) -> Checkpoint:
        """Files, then the manifest. Raises Exists if their folder holds something else under one of these names."""
        files = self._upload(item, packed)
        told = item.told = item.told or self._tell(item, packed)
        return put_manifest(self.store, self.names, told, files, self.facts.code_version, item.token)

    def _is_taken(self, packed: LocalCheckpoint) -> bool:
        """Whether another checkpoint lies where this one, of which nothing was sent, would go."""
        if not self.store.unique_names:
            return False
        try:
            self.store.stat(self.store.ref(self.names.manifest(*packed.key)))
        except Missing:
            return False
        return True

    def _still_borrowed(self, packed: LocalCheckpoint, told: CommitRecord | None) -> LocalCheckpoint:
        """P6: a commit names only its own files and those of retained checkpoints that are there and of the right size;
        else it sends all, for all are here. So it does where the second lender that was on its way never came.

        Raises SharedFilesGone (69) once a manifest that says otherwise was sent.
        """
        if not packed.borrowed:
            return packed
        lenders = {c.key: c for c in self.lease.state.undamaged if c.lends}
        lender = lenders.get(packed.base) if packed.base else None
        if lender is not None and (len(lenders) > 1 or self.lending.ending):
            names = all(file.key.startswith(lender.folder) for file in packed.borrowed)
            if names and all(_is_there(self.store, file) for file in packed.borrowed):
                return packed
        if told is not None:
            raise SharedFilesGone(packed.step)
        return packed.alone()

    def committed(self, item: Item) -> None:
        """The older backup goes, then retention's turn."""
        if item.packed and self.backup and self.backup != item.packed.key:
            self.local_folder.remove(self.backup)
        self.backup = item.packed.key if item.packed else self.backup
        if item.packed is not None:
            with suppress(OSError):  # a disk that refuses costs no commit
                self.local_folder.settle(item.packed)
        self.housekeeping(False)

    def _measure(self, item: Item) -> None:
        self.commits += 1
        self.latency_s = max(self.latency_s, self.runtime.monotonic() - item.taken_at)
        self.interval_s = max(self.interval_s, item.taken_at - (self._taken_at or self.lease.taken_at))
        self._taken_at = item.taken_at

    def forget(self, item: Item) -> None:
        """Remove what an unneeded item left on this machine."""
        if item.packed is not None:
            self.local_folder.remove(item.packed.key)
        self.lending.sending = None

    def keep(self, item: Item) -> LocalCheckpoint:
        """Save the snapshot into its folder on this machine, once, and let the snapshot go. Raises OSError."""
        with self._saving:
            if item.packed is None:
                began = self.runtime.monotonic()
                item.packed = pack(item, self.lease, self.local_folder, self.facts, self.lending)
                item.snapshot = None
                self.budget.measured.add("save", self.runtime.monotonic() - began)
                self.budget.size = self._next_bytes(item.packed)
            return item.packed

    def _next_bytes(self, packed: LocalCheckpoint) -> int:
        """About what the last snapshot will send: not what this one lends, where that can be borrowed."""
        return packed.unlent_bytes if self.lending.can_borrow else packed.sent_bytes

    def _upload(self, item: Item, packed: LocalCheckpoint) -> list[Uploaded]:
        """Files first, each verified; what an earlier attempt brought is not sent again."""
        began, prefix = self.runtime.monotonic(), self.names.checkpoint(*packed.key, item.token)
        keys = {file.name: prefix + file.name for file in packed.own}
        folder = self.local_folder.folder(packed.key)
        sent, self.budget.sending = self.show("sending", packed.step, packed.sent_bytes), packed.sent_bytes
        files = upload(self.store, folder, keys, workers=self.workers, progress=lambda _: _check(item), sent=sent)
        share = packed.unlent_bytes / max(1, packed.sent_bytes)  # what is lent is not what the end must reckon with
        seconds, self.budget.sending = self.runtime.monotonic() - began, 0
        self.budget.measured.add("upload", share * seconds, round(share * packed.sent_bytes))
        self._stored = packed.key, entries(files)
        return files

    def _tell(self, item: Item, packed: LocalCheckpoint) -> CommitRecord:
        """What is known once the evaluation and the next step are over, or have taken too long."""
        self._await_ready(item)
        return CommitRecord(packed.model_copy(update={"metrics": finite(item.metrics)}), _read(item.next), item.metric)

    def _await_ready(self, item: Item) -> None:
        """Evaluation and next step run beside the upload and are worth waiting for, but never the commit itself."""
        waited = 0.0
        while item.ready is not None and not item.ready.is_set():
            left = self.budget.deadline - self.runtime.monotonic() - 2 * self.budget.measured.high("append", 1.0)
            if left <= 0 or waited >= (HURRIED_S if self.in_a_hurry() else READY_S):
                return
            item.ready.wait(min(left, 1.0))
            waited = waited + 1.0

    def _append(self, item: Item, checkpoint: Checkpoint) -> None:
        metrics = finite({**item.metrics, **self.budget.measured.summary()})

        def build(state: RunState) -> Commit:
            if state.checkpoint(checkpoint.key) is not None:
                raise _AlreadyThere
            verdict = self.verdict
            return Commit(
                checkpoint=checkpoint,
                certified=verdict.certified,
                why=verdict.why[:200],
                seconds=self.lease.seconds,
                metrics=metrics,
                samples=self._samples(item, state),
            )

        item.intent = item.intent or self.lease.ledger.intent()
        try:
            state = self.lease.append("commit", build, item.intent, lambda: item.abandoned)
        except _AlreadyThere:
            state = self.lease.refresh()
        self.made.append(checkpoint)
        self._lend(item)
        self._compare_recomputed(state, checkpoint)
        self._measure(item)

    def _samples(self, item: Item, state: RunState) -> Samples | None:
        """Of the steps since the head, where the state leaves them room."""
        rows = on_clock(item.rows, self.lease.taken_at) or untimed(item.packed.samples if item.packed else None)
        return table(rows, state.step, item.step) if len(dumps(state.model_dump(mode="json"))) <= MAX_STATE else None

    def _lend(self, item: Item) -> None:
        """Snapshots from now on may borrow what this committed one lends, if this machine's disk keeps it."""
        packed, self.lending.sending = item.packed, None
        if packed is not None and packed.lent and self._stored[0] == packed.key:
            lent = tuple(file for file in self._stored[1] if file.name in packed.lent)
            self.lending.add(packed.key, lent, self.local_folder.folder(packed.key))
            self.budget.size = self._next_bytes(packed)

    def _compare_recomputed(self, state: RunState, new: Checkpoint) -> None:
        """P7: the damaged step is there again; say whether it is the same state."""
        for old in state.retained:
            if old.damaged and old.step == new.step:
                same = "the same state" if old.state_hash == new.state_hash else "ANOTHER state"
                text = f"Step {new.step}, damaged in epoch {old.epoch}, is there again: {same}."
                self.lease.note(Noted(cause=RECOMPUTED, text=text, step=new.step))


class SharedFilesGone(StorageUnreachable):
    """Files that a checkpoint shares with an earlier one have left the store; it stays on this machine."""

    def __init__(self, step: int) -> None:
        super().__init__(f"Files that step {step:,} shares with an earlier checkpoint are not in the store any more.")
        self.step = step


class _AlreadyThere(Exception):
    """An earlier attempt, whose outcome nobody knew, has landed."""


def _is_there(store: Store, file: FileEntry) -> bool:
    try:
        return store.stat(Ref(file.ref)).size == file.size
    except Missing:
        return False


def _read(following: StepDigest | None) -> StepDigest | None:
    """The digest as text, waited for on this thread. None if the device failed at that step: training tells of it."""
    try:
        return following and StepDigest(following.step, following.path, following.digest)
    except RuntimeError:
        return None


def _check(item: Item) -> None:
    item.heed()
    if item.abandoned:
        raise Abandoned
