"""Checkpoints in this machine's `sync/<project>/<run>/` folder: the newest one's backup, and those not sent yet.

Each is a folder `step_N.eE/`, exactly as the workload saved it, and a description `step_N.eE.json`, written last, which
lists the files with their hashes. The ledger decides which of them are committed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from relay.core.checkpoint.manifest import MAX_BYTES, MAX_FILES, FileEntry, FileName
from relay.core.folders import try_folder
from relay.core.ledger.fields import Digest, Epoch, Id, Metrics, Sparing, Strict, Text
from relay.core.ledger.sessionreport import Samples
from relay.core.ledger.state import Checkpoint, NextDigest, RunState
from relay.core.ledger.verified import RolledBack
from relay.core.names import Name
from relay.core.workload import Step
from storage.files import sync
from storage.transfer import file_digest

# --- The description of a checkpoint on this machine's disk ---------------------------------------------------------


class LocalFile(Strict):
    """One file of the folder."""

    name: FileName
    size: Annotated[int, Field(ge=0)]
    sha256: Digest


class LocalCheckpoint(Sparing):
    """A checkpoint on this machine's disk, complete and hashed."""

    added: ClassVar[tuple[str, ...]] = ("samples", "base", "borrowed", "lends", "committed")

    format: Literal[1] = 1
    project: Name
    run: Name
    run_id: Id
    step: Step
    epoch: Epoch
    parent: tuple[Step, Epoch] | None
    """Key of the head it was trained from."""
    state_hash: Digest
    files: Annotated[tuple[LocalFile, ...], Field(max_length=MAX_FILES)]
    config_hash: Digest
    fingerprint: dict[Annotated[str, Field(max_length=60)], Text]
    next: NextDigest | None = None
    metrics: Metrics = Field(default_factory=dict)
    samples: Samples | None = None
    """The metrics of training since the parent."""
    base: tuple[Step, Epoch] | None = None
    """As `Checkpoint.base`."""
    borrowed: Annotated[tuple[FileEntry, ...], Field(max_length=MAX_FILES)] = ()
    """The files that are already in the store, in the checkpoint `base`."""
    lends: Annotated[tuple[FileName, ...], Field(max_length=MAX_FILES)] = ()
    """Its own files that later checkpoints may borrow; unknown for a downloaded checkpoint."""
    committed: bool | None = None
    """True once the ledger has named it; otherwise it may never have been sent."""

    @property
    def key(self) -> tuple[int, int]:
        return self.step, self.epoch

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self.files)

    @property
    def own(self) -> tuple[LocalFile, ...]:
        """The files that are sent under its own key."""
        borrowed = {file.name for file in self.borrowed}
        return tuple(file for file in self.files if file.name not in borrowed)

    @property
    def sent_bytes(self) -> int:
        """Size of the own files."""
        return sum(file.size for file in self.own)

    @property
    def lent(self) -> tuple[str, ...]:
        """Names of files that later checkpoints may borrow."""
        return self.lends or (tuple(file.name for file in self.files) if self.base == self.key else ())

    @property
    def unlent_bytes(self) -> int:
        """Size of its own files that it does not lend, so that each checkpoint sends them again."""
        return sum(file.size for file in self.own if file.name not in self.lends)

    def alone(self) -> LocalCheckpoint:
        """The same checkpoint with all its files sent as its own; it lends the files that it borrowed."""
        if not self.borrowed:
            return self
        return self.model_copy(
            update={"base": self.key, "borrowed": (), "lends": tuple(file.name for file in self.borrowed)}
        )

    def renamed(self, epoch: int, parent: tuple[int, int] | None) -> LocalCheckpoint:
        """The same checkpoint under another epoch."""
        base = (self.step, epoch) if self.base == self.key else self.base
        return self.model_copy(update={"epoch": epoch, "parent": parent, "base": base, "committed": None})


# --- The folder of one run on this machine --------------------------------------------------------------------------

INCOMING, LOCK = "incoming", "lock"
ASIDE = "aside"
OWNER = "owner"
"""File with the id of the run that owns the folder."""
KEPT_UNSENT = 2
"""Most checkpoints kept for `fork` after the run went on without them."""
_FOLDER = re.compile(r"step_(0|[1-9][0-9]{0,15})\.e(0|[1-9][0-9]{0,15})")


@dataclass(frozen=True)
class LocalFolder:
    """The folder of one run on this machine."""

    root: Path

    def folder(self, key: tuple[int, int]) -> Path:
        """The folder of a checkpoint's files."""
        return self.root / f"step_{key[0]}.e{key[1]}"

    def fresh(self, key: tuple[int, int]) -> Path:
        """An empty folder for a checkpoint; earlier contents are removed. Raises OSError."""
        self.remove(key)
        folder = self.folder(key)
        folder.mkdir(parents=True)
        return folder

    def probe(self) -> None:
        """Find a failing disk early. Raises FolderRefused (78)."""
        try_folder(self.root)

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """An empty folder for one download; an incomplete download is removed. Raises OSError.

        The folder is locked against other sessions: a superseded session of this machine may still be downloading.
        """
        self._drop_left_behind()
        self.root.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=f"{INCOMING}.", dir=self.root))
        try:
            with FileLock(place / LOCK):
                folder = place / INCOMING
                folder.mkdir()
                yield folder
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _drop_left_behind(self) -> None:
        """Remove downloads of processes that are gone; earlier versions used one folder for all."""
        for place in self.root.glob(f"{INCOMING}*"):
            with suppress(Timeout, OSError), FileLock(place / LOCK, timeout=0):
                shutil.rmtree(place, ignore_errors=True)

    def arrived(self, packed: LocalCheckpoint, folder: Path) -> None:
        """Replace this machine's copy by a complete and verified download. Raises OSError."""
        self.remove(packed.key)
        folder.rename(self.folder(packed.key))
        self.seal(packed)

    def seal(self, packed: LocalCheckpoint) -> None:
        """Write the description durably: from now on the checkpoint counts as complete. Raises OSError."""
        path = self._description(packed.key)
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.write(packed.model_dump_json(indent=1).encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        fsync_folder(self.root)

    def holds(self, key: tuple[int, int]) -> bool:
        """Whether a checkpoint is here and complete, judging by its description alone."""
        return self._description(key).is_file()

    def all(self) -> list[LocalCheckpoint]:
        """Complete checkpoints, sorted by step and epoch; unreadable ones are skipped."""
        found = (self._read(key) for key in self._keys())
        return sorted((packed for packed in found if packed), key=lambda packed: packed.key)

    def remove(self, key: tuple[int, int]) -> None:
        """Remove a checkpoint, its description first: if the rest cannot be removed, it counts as incomplete."""
        try:
            self._description(key).unlink(missing_ok=True)
        except OSError:
            return
        shutil.rmtree(self.folder(key), ignore_errors=True)

    def tidy(self, state: RunState) -> None:
        """Remove checkpoints of older epochs, except the head's backup and the newest KEPT_UNSENT uncommitted ones.

        Checkpoints of another run stay (`local_folder_of`).
        """
        known = {c.key for c in state.retained} | {r.key for r in state.retired}
        here = self.all()
        others = {packed.key for packed in here if packed.run_id != state.run_id}
        older = [packed.key for packed in here if packed.epoch < state.epoch and packed.step > state.step]
        unsent = [key for key in older if key not in known | others]
        kept = {*unsent[-KEPT_UNSENT:], *others, *([state.head.key] if state.head else [])}
        for key in self._keys():
            if key[1] < state.epoch and key not in kept:
                self.remove(key)

    @property
    def aside(self) -> LocalFolder:
        """Checkpoints that the run went on without by a person's choice; for `fork`."""
        return LocalFolder(self.root / ASIDE)

    def set_aside(self, packed: LocalCheckpoint) -> None:
        """Move a checkpoint to `aside`, where no session removes it; the newest KEPT_UNSENT stay. Raises OSError."""
        aside = self.aside
        folder = aside.fresh(packed.key)
        for file in packed.files:
            link_or_copy(self.folder(packed.key) / file.name, folder / file.name)
        fsync_folder(folder)
        aside.seal(packed)
        self.remove(packed.key)
        for old in [one.key for one in aside.all()][:-KEPT_UNSENT]:
            aside.remove(old)

    def bytes(self) -> int:
        """Size of everything in the folder; a file of several names counts once."""
        found = (path.stat() for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())
        return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in found}.values())

    def pushable(self, state: RunState) -> LocalCheckpoint | None:
        """The newest intact, uncommitted checkpoint that was trained from the run's current head.

        The head may also be an earlier step of the same session, whose append landed after the session gave it up.
        """
        head = state.head.key if state.head else None
        for packed in reversed(self.all()):
            ours = (packed.run_id, packed.config_hash) == (state.run_id, state.config_hash)
            continues = packed.parent == head or (head is not None and head[1] == packed.epoch)
            unsent = not packed.committed and packed.step > state.step
            if ours and continues and unsent and self.intact(packed):
                return packed
        return None

    def settle(self, packed: LocalCheckpoint) -> None:
        """Note that the ledger has named a checkpoint: a store without it was rolled back. Raises OSError."""
        self.seal(packed.model_copy(update={"committed": True}))

    def refuse_rolled_back(self, known: Iterable[LocalCheckpoint], state: RunState) -> None:
        """Raises RolledBack (65) if a checkpoint on this machine shows that the store was newer once.

        `known` was read before `state`, so the state contains every commit and epoch of that time. A commit that was
        passed over was not rolled back, even if its epoch's entries are unreadable.
        """
        keys = {c.key for c in state.retained} | {r.key for r in state.retired} | {k.key for k in state.kept}
        for packed in known:
            unknown = packed.key not in keys and packed.epoch not in state.unread
            beyond = packed.committed and packed.step > state.step and unknown
            if packed.run_id == state.run_id and (beyond or packed.epoch >= state.next_epoch):
                raise RolledBack(
                    f"The store of run {state.project}/{state.run} was rolled back. This machine has step "
                    f"{packed.step:,} of epoch {packed.epoch} ({self.folder(packed.key)}), but the store is at step "
                    f"{state.step:,} of epoch {state.epoch}.",
                    run=state.run,
                    step=packed.step,
                    epoch=packed.epoch,
                )

    def copy_of(self, checkpoint: Checkpoint, state: RunState) -> LocalCheckpoint | None:
        """This machine's intact copy of a committed checkpoint, or None."""
        packed = self._read(checkpoint.key)
        if packed is None or packed.state_hash != checkpoint.state_hash or not self.intact(packed):
            return None
        return packed if (packed.run_id, packed.config_hash) == (state.run_id, state.config_hash) else None

    def adopt(self, packed: LocalCheckpoint, epoch: int, parent: tuple[int, int] | None) -> LocalCheckpoint:
        """Give a checkpoint this session's epoch: each (step, epoch) is sent at most once. Raises OSError."""
        adopted = packed.renamed(epoch, parent)
        if adopted.key == packed.key:  # a ledger that lost a lease gives its epoch again: keep these files
            self.seal(adopted)
            return adopted
        new = self.fresh(adopted.key)
        for file in packed.files:
            link_or_copy(self.folder(packed.key) / file.name, new / file.name)
        fsync_folder(new)
        self.seal(adopted)  # now both are complete: a kill at any point leaves at least one
        self.remove(packed.key)
        return adopted

    def intact(self, packed: LocalCheckpoint) -> bool:
        """Whether every file still has its size and hash."""
        folder = self.folder(packed.key)
        return all(hashed(folder / file.name) == (file.size, file.sha256) for file in packed.files)

    def _description(self, key: tuple[int, int]) -> Path:
        return self.folder(key).with_name(f"step_{key[0]}.e{key[1]}.json")

    def _keys(self) -> list[tuple[int, int]]:
        names = (path.name.removesuffix(".json") for path in self.root.glob("step_*"))
        found = (_FOLDER.fullmatch(name) for name in names)
        return sorted({(int(match[1]), int(match[2])) for match in found if match})

    def _read(self, key: tuple[int, int]) -> LocalCheckpoint | None:
        try:
            data = self._description(key).read_bytes()
            packed = LocalCheckpoint.model_validate_json(data) if len(data) <= MAX_BYTES else None
        except (OSError, ValidationError):
            return None
        return packed if packed and packed.key == key else None


def local_folder_of(home: Path, run_id: str) -> LocalFolder:
    """The run's folder: `home` if it has this owner or none, otherwise a folder inside it. Writes nothing.

    Runs of one name in different stores share one `home`. No run touches the unsent checkpoints of another.
    """
    return LocalFolder(home if _owner(home, run_id) in (None, run_id) else home / run_id[:8])


def claimed_folder_of(home: Path, run_id: str) -> LocalFolder:
    """`local_folder_of`, claimed for this run: of several runs that begin at once, one gets `home`.

    A failing disk is not an error here: `LocalFolder.probe` raises it.
    """
    if _owner(home, run_id) is None:
        with suppress(OSError):
            home.mkdir(parents=True, exist_ok=True)
            with (home / OWNER).open("x", encoding="ascii") as file:
                file.write(run_id)
    return local_folder_of(home, run_id)


def _owner(home: Path, run_id: str) -> str | None:
    """Id of the run that owns `home`, None without an owner. A run that has begun to claim it counts as owner."""
    try:
        return (home / OWNER).read_text(encoding="ascii", errors="replace")[:100].strip()
    except FileNotFoundError:  # not claimed, or made by a version without owners
        others = {packed.run_id for packed in LocalFolder(home).all()} - {run_id}
        return min(others, default="" if (home / run_id[:8]).exists() else None)
    except OSError:
        return None


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name; on a disk without hard links, a durable copy."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        with source.open("rb") as old, target.open("xb") as new:
            shutil.copyfileobj(old, new)
            new.flush()
            os.fsync(new.fileno())


def hashed(path: Path) -> tuple[int, str] | None:
    """(size, SHA-256) of a plain file; None if it does not exist or is not plain."""
    try:
        return None if path.is_symlink() or not path.is_file() else file_digest(path)
    except OSError:
        return None


def fsync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)
