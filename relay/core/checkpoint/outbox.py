"""Checkpoints in this machine's `sync/<project>/<run>/` folder: the newest one's backup, and those not sent yet.

Each is a folder `step_N.eE/` exactly as the workload saved it and, written last, `step_N.eE.json`, which lists its
files with their hashes. It knows nothing of stores: whether one is committed, the ledger says.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from relay.core.checkpoint.manifest import MAX_BYTES
from relay.core.checkpoint.packed import Packed
from relay.core.errors import BadConfig
from relay.core.ledger.mark import RolledBack
from relay.core.ledger.state import Checkpoint, RunState
from storage.files import sync
from storage.transfer import file_digest

INCOMING = "incoming"
ASIDE = "aside"
OWNER = "owner"
"""File that holds the id of the run whose folder this is."""
KEPT_UNSENT = 2
"""Checkpoints kept for `fork` after the run went on without them."""
_FOLDER = re.compile(r"step_(0|[1-9][0-9]{0,15})\.e(0|[1-9][0-9]{0,15})")


class FolderRefused(BadConfig):
    """This machine's checkpoints cannot be written where they should be."""

    def __init__(self, folder: Path, why: str) -> None:
        super().__init__(f"Checkpoints of this machine cannot be written to {folder}: {why}.")
        self.folder, self.why = folder, why


@dataclass(frozen=True)
class Outbox:
    """The folder of one run on this machine."""

    root: Path

    def folder(self, key: tuple[int, int]) -> Path:
        """Where a checkpoint's files lie."""
        return self.root / f"step_{key[0]}.e{key[1]}"

    def fresh(self, key: tuple[int, int]) -> Path:
        """An empty folder for a checkpoint; what was there is removed. Raises OSError."""
        self.remove(key)
        folder = self.folder(key)
        folder.mkdir(parents=True)
        return folder

    def probe(self) -> None:
        """Write and remove a small file, durably: a disk that refuses is known early. Raises FolderRefused (78)."""
        path = self.root / "probe.tmp"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(b"probe")
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
        except OSError as error:
            raise FolderRefused(self.root, str(error.strerror)) from error

    def incoming(self) -> Path:
        """An empty folder for a download, beside what is here already. Raises OSError."""
        self.drop_incoming()
        folder = self.root / INCOMING
        folder.mkdir(parents=True)
        return folder

    def drop_incoming(self) -> None:
        """Remove a download that came to nothing."""
        shutil.rmtree(self.root / INCOMING, ignore_errors=True)

    def arrived(self, packed: Packed) -> None:
        """The download is complete and verified: it takes the place of this machine's copy. Raises OSError."""
        self.remove(packed.key)
        (self.root / INCOMING).rename(self.folder(packed.key))
        self.seal(packed)

    def seal(self, packed: Packed) -> None:
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
        """Whether a checkpoint is here and complete, going by its description."""
        return self._description(key).is_file()

    def all(self) -> list[Packed]:
        """Complete checkpoints, by step and epoch; what is not readable is skipped."""
        found = (self._read(key) for key in self._keys())
        return sorted((packed for packed in found if packed), key=lambda packed: packed.key)

    def remove(self, key: tuple[int, int]) -> None:
        """Forget a checkpoint; one that cannot be removed stays incomplete and is tried again next time."""
        try:
            self._description(key).unlink(missing_ok=True)
        except OSError:
            return
        shutil.rmtree(self.folder(key), ignore_errors=True)

    def tidy(self, state: RunState) -> None:
        """Remove what older epochs left but the head's backup and the newest few that were never committed.

        What another run has here stays (`outbox_of`).
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
    def aside(self) -> Outbox:
        """Checkpoints that the run was continued without, by a person's choice; for `fork`."""
        return Outbox(self.root / ASIDE)

    def set_aside(self, packed: Packed) -> None:
        """Move a checkpoint where no session removes it; the newest KEPT_UNSENT stay there. Raises OSError."""
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

    def pushable(self, state: RunState) -> Packed | None:
        """The newest intact checkpoint that was trained from the run's present head and never committed.

        Also where the head is an earlier step of the session that made it, whose append landed after that session
        had given it up.
        """
        head = state.head.key if state.head else None
        for packed in reversed(self.all()):
            ours = (packed.run_id, packed.config_hash) == (state.run_id, state.config_hash)
            continues = packed.parent == head or (head is not None and head[1] == packed.epoch)
            unsent = not packed.committed and packed.step > state.step
            if ours and continues and unsent and self.intact(packed):
                return packed
        return None

    def settle(self, packed: Packed) -> None:
        """Remember that the ledger has named a checkpoint: a store without it was rolled back. Raises OSError."""
        self.seal(packed.model_copy(update={"committed": True}))

    def refuse_rolled_back(self, known: Iterable[Packed], state: RunState) -> None:
        """Raises RolledBack (65) if a checkpoint on this machine shows that the store was newer once.

        `known` was read before `state`: what was committed or begun by then is in it. What was passed over was not
        rolled back, even if nobody could tell that it was committed.
        """
        keys = {c.key for c in state.retained} | {r.key for r in state.retired} | {k.key for k in state.kept}
        for packed in known:
            unknown = packed.key not in keys and packed.epoch not in state.unread
            beyond = packed.committed and packed.step > state.step and unknown
            if packed.run_id == state.run_id and (beyond or packed.epoch >= state.next_epoch):
                raise RolledBack(
                    f"The store was rolled back: this machine has step {packed.step:,} of epoch {packed.epoch} of run "
                    f"{state.project}/{state.run} ({self.folder(packed.key)}), but the store is at step {state.step:,} "
                    f"of epoch {state.epoch}.",
                    run=state.run,
                    step=packed.step,
                    epoch=packed.epoch,
                )

    def copy_of(self, checkpoint: Checkpoint, state: RunState) -> Packed | None:
        """This machine's intact copy of a committed checkpoint, None without one."""
        packed = self._read(checkpoint.key)
        if packed is None or packed.state_hash != checkpoint.state_hash or not self.intact(packed):
            return None
        return packed if (packed.run_id, packed.config_hash) == (state.run_id, state.config_hash) else None

    def adopt(self, packed: Packed, epoch: int, parent: tuple[int, int] | None) -> Packed:
        """Give a checkpoint the present session's epoch: (step, epoch) is sent at most once. Raises OSError."""
        adopted = packed.renamed(epoch, parent)
        if adopted.key == packed.key:  # a ledger that lost a lease gives its epoch again: never empty what is here
            self.seal(adopted)
            return adopted
        new = self.fresh(adopted.key)
        for file in packed.files:
            link_or_copy(self.folder(packed.key) / file.name, new / file.name)
        fsync_folder(new)
        self.seal(adopted)  # from here on there are two, each complete: a kill at any point leaves at least one
        self.remove(packed.key)
        return adopted

    def intact(self, packed: Packed) -> bool:
        """Whether every file still has its size and hash."""
        folder = self.folder(packed.key)
        return all(hashed(folder / file.name) == (file.size, file.sha256) for file in packed.files)

    def _description(self, key: tuple[int, int]) -> Path:
        return self.folder(key).with_name(f"step_{key[0]}.e{key[1]}.json")

    def _keys(self) -> list[tuple[int, int]]:
        names = (path.name.removesuffix(".json") for path in self.root.glob("step_*"))
        found = (_FOLDER.fullmatch(name) for name in names)
        return sorted({(int(match[1]), int(match[2])) for match in found if match})

    def _read(self, key: tuple[int, int]) -> Packed | None:
        try:
            data = self._description(key).read_bytes()
            packed = Packed.model_validate_json(data) if len(data) <= MAX_BYTES else None
        except (OSError, ValidationError):
            return None
        return packed if packed and packed.key == key else None


def outbox_of(home: Path, run_id: str) -> Outbox:
    """The run's own folder: `home` if it is this run's or nobody's, else one inside it. Writes nothing.

    Runs of one name in different stores meet in one `home`; what one of them could not send yet is touched by nobody
    but itself.
    """
    return Outbox(home if _owner(home, run_id) in (None, run_id) else home / run_id[:8])


def claimed_outbox(home: Path, run_id: str) -> Outbox:
    """`outbox_of`, from now on this run's: of several that begin at once one gets `home`.

    A disk that refuses is no error here: `Outbox.probe` tells.
    """
    if _owner(home, run_id) is None:
        with suppress(OSError):
            home.mkdir(parents=True, exist_ok=True)
            with (home / OWNER).open("x", encoding="ascii") as file:
                file.write(run_id)
    return outbox_of(home, run_id)


def _owner(home: Path, run_id: str) -> str | None:
    """Whose `home` is, as far as `run_id` may know: another's as soon as another has begun to say so."""
    try:
        return (home / OWNER).read_text(encoding="ascii", errors="replace")[:100].strip()
    except FileNotFoundError:  # or it was begun before owners were named
        others = {packed.run_id for packed in Outbox(home).all()} - {run_id}
        return min(others, default="" if (home / run_id[:8]).exists() else None)
    except OSError:
        return None


def link_or_copy(source: Path, target: Path) -> None:
    """The same file under a second name; a durable copy on a disk that has no hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        with source.open("rb") as old, target.open("xb") as new:
            shutil.copyfileobj(old, new)
            new.flush()
            os.fsync(new.fileno())


def hashed(path: Path) -> tuple[int, str] | None:
    """(size, SHA-256) of a plain file, None if there is none."""
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
