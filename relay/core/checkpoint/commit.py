"""Makes one snapshot durable: local folder, uploaded files, manifest, then the ledger's `commit` (P6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from relay.core.budget import Budget
from relay.core.checkpoint.certify import Certificate
from relay.core.checkpoint.committer import Abandoned, CommitRecord, Item
from relay.core.checkpoint.local import LocalCheckpoint, LocalFolder
from relay.core.checkpoint.manifest import FileEntry
from relay.core.checkpoint.packing import Facts, entries, pack, put_manifest
from relay.core.checkpoint.sharedfiles import SharedFiles
from relay.core.clock import Runtime
from relay.core.errors import OfStore, StorageUnreachable, UploadFailed
from relay.core.events import Transfer, unseen
from relay.core.lease.lease import Lease
from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import Commit, Noted
from relay.core.ledger.evaluations import carried
from relay.core.ledger.frozen import RECOMPUTED
from relay.core.ledger.sessionreport import MAX_CHECKPOINTS, MAX_STATE, Samples, finite, on_clock, table, untimed
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.names import TOKEN, Names
from relay.core.workload import StepDigest
from storage.base import Exists, Missing, QuotaExceeded, Ref, Store
from storage.transfer import Uploaded, upload

READY_S, HURRIED_S = 600.0, 3.0
"""Longest wait of an append for metrics and the next step's digest; the second applies once a signal came."""


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
    certificate: Certificate
    lending: SharedFiles
    housekeeping: Callable[[bool], None]
    """Called after each commit, and with True if the store is full; raises nothing."""
    workers: int = 4
    make_room: Callable[[], None] = lambda: None
    """Called before each append."""
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
    """Key of the newest upload, and its files."""

    def __post_init__(self) -> None:
        self._saving = self.runtime.lock()

    def commit(self, item: Item) -> None:
        """Do the remaining work of an item. `Pipeline.commit` (committer.py) lists the errors."""
        try:
            self._commit(item, self.keep(item))
        except (QuotaExceeded, StorageUnreachable) as error:
            if isinstance(error.error if isinstance(error, OfStore) else error, QuotaExceeded):
                self.housekeeping(True)
            raise

    def _commit(self, item: Item, packed: LocalCheckpoint) -> None:
        if item.checkpoint is None:
            packed = item.packed = self._still_borrowed(packed, item.record)
            item.checkpoint = self._stored_free(item, packed)
        _check(item)
        self.make_room()
        began = self.runtime.monotonic()
        self._append(item, item.checkpoint)
        self.budget.measured.add("append", self.runtime.monotonic() - began)

    def _stored_free(self, item: Item, packed: LocalCheckpoint) -> Checkpoint:
        """Store the checkpoint in a folder of its own: the plain one, or if that is taken one with a token.

        No other session should have sent this key (P5), but the store may hold such a folder.
        """
        token = self.lease.session[:TOKEN]
        if item.record is None and self._is_taken(packed):
            item.token = token
        try:
            return self._store(item, packed)
        except Exists:
            if item.token:
                raise
        item.token = token
        return self._store(item, packed)

    def _store(self, item: Item, packed: LocalCheckpoint) -> Checkpoint:
        """Upload the files, then the manifest. Raises Exists if other bytes have one of these names."""
        files = self._upload(item, packed)
        record = item.record = item.record or self._record(item, packed)
        return put_manifest(self.store, self.names, record, files, self.facts.code_version, item.token)

    def _is_taken(self, packed: LocalCheckpoint) -> bool:
        """Whether another checkpoint lies where this one would go; nothing of this one was sent yet."""
        if not self.store.unique_names:
            return False
        try:
            self.store.stat(self.store.ref(self.names.manifest(*packed.key)))
        except Missing:
            return False
        return True

    def _still_borrowed(self, packed: LocalCheckpoint, record: CommitRecord | None) -> LocalCheckpoint:
        """The checkpoint as it can be sent now.

        P6: a commit names only its own files and those of retained checkpoints that exist with the right size. If a
        borrowed file is gone, or an expected second lender was never committed, the commit sends all files instead: all
        of them are on this machine.

        Raises SharedFilesGone (69) if a manifest that borrows was already sent.
        """
        if not packed.borrowed:
            return packed
        lenders = {c.key: c for c in self.lease.state.undamaged if c.lends}
        lender = lenders.get(packed.base) if packed.base else None
        if lender is not None and (len(lenders) > 1 or self.lending.ending):
            names = all(file.key.startswith(lender.folder) for file in packed.borrowed)
            if names and all(_is_there(self.store, file) for file in packed.borrowed):
                return packed
        if record is not None:
            raise SharedFilesGone(packed.step)
        return packed.alone()

    def committed(self, item: Item) -> None:
        """Remove the older backup, then run retention."""
        if item.packed and self.backup and self.backup != item.packed.key:
            self.local_folder.remove(self.backup)
        self.backup = item.packed.key if item.packed else self.backup
        if item.packed is not None:
            with suppress(OSError):  # a failing disk must not fail the commit
                self.local_folder.settle(item.packed)
        self.housekeeping(False)

    def _measure(self, item: Item) -> None:
        self.commits += 1
        self.latency_s = max(self.latency_s, self.runtime.monotonic() - item.taken_at)
        self.interval_s = max(self.interval_s, item.taken_at - (self._taken_at or self.lease.taken_at))
        self._taken_at = item.taken_at

    def forget(self, item: Item) -> None:
        """Remove an unneeded item from this machine."""
        if item.packed is not None:
            self.local_folder.remove(item.packed.key)
        self.lending.sending = None

    def keep(self, item: Item) -> LocalCheckpoint:
        """Save the snapshot to its folder on this machine, once, and free it. Raises OSError."""
        with self._saving:
            if item.packed is None:
                began = self.runtime.monotonic()
                item.packed = pack(item, self.lease, self.local_folder, self.facts, self.lending)
                item.snapshot = None
                self.budget.measured.add("save", self.runtime.monotonic() - began)
                self.budget.size = self._next_bytes(item.packed)
            return item.packed

    def _next_bytes(self, packed: LocalCheckpoint) -> int:
        """Estimated upload of the last snapshot: without the files that this one lends, if they can be borrowed."""
        return packed.unlent_bytes if self.lending.can_borrow else packed.sent_bytes

    def _upload(self, item: Item, packed: LocalCheckpoint) -> list[Uploaded]:
        """Upload and verify each file, except those that an earlier attempt uploaded."""
        began, prefix = self.runtime.monotonic(), self.names.checkpoint(*packed.key, item.token)
        keys = {file.name: prefix + file.name for file in packed.own}
        folder = self.local_folder.folder(packed.key)
        sent, self.budget.sending = self.show("sending", packed.step, packed.sent_bytes), packed.sent_bytes
        files = upload(self.store, folder, keys, workers=self.workers, progress=lambda _: _check(item), sent=sent)
        share = packed.unlent_bytes / max(1, packed.sent_bytes)  # the session's end need not send lent files again
        seconds, self.budget.sending = self.runtime.monotonic() - began, 0
        self.budget.measured.add("upload", share * seconds, round(share * packed.sent_bytes))
        self._stored = packed.key, entries(files)
        return files

    def _record(self, item: Item, packed: LocalCheckpoint) -> CommitRecord:
        """The record, once the evaluation and the next step are over or have taken too long."""
        self._await_ready(item)
        return CommitRecord(packed.model_copy(update={"metrics": finite(item.metrics)}), _read(item.next), item.metric)

    def _await_ready(self, item: Item) -> None:
        """Wait for the evaluation and the next step, which run during the upload, but never so long that the commit
        itself is late."""
        waited = 0.0
        while item.ready is not None and not item.ready.is_set():
            left = self.budget.deadline - self.runtime.monotonic() - 2 * self.budget.measured.high("append", 1.0)
            if left <= 0 or waited >= (HURRIED_S if self.in_a_hurry() else READY_S):
                return
            item.ready.wait(min(left, 1.0))
            waited = waited + 1.0

    def _append(self, item: Item, checkpoint: Checkpoint) -> None:
        metrics = {**item.metrics, **self.budget.measured.summary()}

        def build(state: RunState) -> Commit:
            if state.checkpoint(checkpoint.key) is not None:
                raise _AlreadyThere
            certificate = self.certificate
            return Commit(
                checkpoint=checkpoint,
                certified=certificate.certified,
                why=certificate.why[:200],
                seconds=self.lease.seconds,
                metrics=finite({**metrics, **carried(state, checkpoint, item.evaluated_rows)}),
                samples=self._samples(item, state),
            )

        item.intent = item.intent or self.lease.ledger.intent()
        try:
            state = self.lease.append("commit", build, item.intent, lambda: item.abandoned)
        except _AlreadyThere:
            state = self.lease.refresh()
        self.made.append(checkpoint)
        self._lend(item)
        with suppress(StorageUnreachable, UploadFailed):  # the commit has landed, and needs no note
            self._compare_recomputed(state, checkpoint)
        self._measure(item)

    def _samples(self, item: Item, state: RunState) -> Samples | None:
        """The metrics of the steps since the head, if the state leaves room for them in an entry."""
        rows = on_clock(item.rows, self.lease.taken_at) or untimed(item.packed.samples if item.packed else None)
        return table(rows, state.step, item.step) if len(dumps(state.model_dump(mode="json"))) <= MAX_STATE else None

    def _lend(self, item: Item) -> None:
        """Let later snapshots borrow the files that this committed one lends, if this machine's disk keeps them."""
        packed, self.lending.sending = item.packed, None
        if packed is not None and packed.lent and self._stored[0] == packed.key:
            lent = tuple(file for file in self._stored[1] if file.name in packed.lent)
            self.lending.add(packed.key, lent, self.local_folder.folder(packed.key))
            self.budget.size = self._next_bytes(packed)

    def _compare_recomputed(self, state: RunState, new: Checkpoint) -> None:
        """P7: if a damaged step was trained again, note whether the state is the same."""
        for old in state.retained:
            if old.damaged and old.step == new.step:
                same = "the same state" if old.state_hash == new.state_hash else "ANOTHER state"
                text = f"Step {new.step}, damaged in epoch {old.epoch}, is there again: {same}."
                self.lease.note(Noted(cause=RECOMPUTED, text=text, step=new.step))


class SharedFilesGone(StorageUnreachable):
    """Files that a checkpoint shares with an earlier one are gone from the store; it stays on this machine."""

    def __init__(self, step: int) -> None:
        super().__init__(f"The store has lost files that step {step:,} shares with an earlier checkpoint.")
        self.step = step


class _AlreadyThere(Exception):
    """An earlier attempt with unknown outcome has landed."""


def _is_there(store: Store, file: FileEntry) -> bool:
    try:
        return store.stat(Ref(file.ref)).size == file.size
    except Missing:
        return False


def _read(following: StepDigest | None) -> StepDigest | None:
    """Wait for the digest and return it as text. None if the device failed at that step: training raises that error."""
    try:
        return following and StepDigest(following.step, following.path, following.digest)
    except RuntimeError:
        return None


def _check(item: Item) -> None:
    item.heed()
    if item.abandoned:
        raise Abandoned
