"""Offers files of committed checkpoints to the next snapshot, which names them instead of writing them again.

If a lender is damaged, all its borrowers are. So the newest lender's files are offered only once the run retains a
second lender. Each offered file is kept on this machine under a second name, so that a checkpoint in `sync/` is always
complete.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from relay.core.checkpoint.local import LocalFile, LocalFolder, fsync_folder, link_or_copy
from relay.core.checkpoint.manifest import FileEntry
from relay.core.errors import BadConfig
from relay.core.lease.lease import Lease
from relay.core.ledger.changes import Key
from relay.core.workload import Borrower, Saved, Workload

LENT = "lent"
"""Folder of lent files in a run's `sync/` folder."""
OFFERED, REMEMBERED = 2, 3
"""Numbers of lenders. One more may be committed between a snapshot and its write to disk."""


@dataclass(frozen=True)
class Lender:
    """A committed checkpoint and its files that may be borrowed."""

    key: Key
    files: tuple[FileEntry, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(file.name for file in self.files)


@dataclass
class SharedFiles:
    """The files that snapshots of one session may borrow."""

    local_folder: LocalFolder
    sending: Key | None = None
    """A checkpoint on its way that will lend files once it is committed."""
    ending: bool = False
    """The session's last snapshot was requested: it borrows as much as possible, even without a second lender."""
    _lenders: list[Lender] = field(default_factory=list)

    @property
    def can_borrow(self) -> bool:
        """Whether the session's last snapshot can borrow."""
        return bool(self._lenders)

    def clear(self) -> None:
        """Remove the files that earlier sessions kept."""
        shutil.rmtree(self.local_folder.root / LENT, ignore_errors=True)

    def offer(self, workload: Workload, lease: Lease, last: bool) -> None:
        """Offer files before a snapshot. last: the session's last one, when time may suffice only for small changes."""
        self.ending = last
        if isinstance(workload, Borrower):
            state = lease.state
            lenders = {c.base for c in state.undamaged if c.base} | ({self.sending} if self.sending else set())
            usable = {c.key for c in state.undamaged}
            names = [lender.names for lender in self._lenders if lender.key in usable][-OFFERED:]
            workload.lend(frozenset().union(*names) if last or len(lenders) > 1 else frozenset(), last)

    def add(self, key: Key, files: tuple[FileEntry, ...], folder: Path) -> None:
        """Offer the files of a committed checkpoint from `folder`, if this disk has room for them."""
        with suppress(OSError):
            self._copy(files, folder, self._folder(key))
            self._lenders = [*(known for known in self._lenders if known.key != key), Lender(key, files)]
        for old in self._lenders[:-REMEMBERED]:
            shutil.rmtree(self._folder(old.key), ignore_errors=True)
        self._lenders = self._lenders[-REMEMBERED:]

    def borrow(self, saved: Saved, folder: Path) -> tuple[Key | None, tuple[FileEntry, ...]]:
        """Copy the borrowed files into the folder of a new snapshot. Returns the lender's key and the files. Raises
        OSError."""
        if not saved.borrows:
            return None, ()
        for lender in reversed(self._lenders):
            if lender.names >= set(saved.borrows):
                files = tuple(file for file in lender.files if file.name in saved.borrows)
                self._copy(files, self._folder(lender.key), folder)
                return lender.key, files
        raise BadConfig(f"The training loop borrows {saved.borrows}, which were not offered: it breaks its contract.")

    def _folder(self, key: Key) -> Path:
        return self.local_folder.root / LENT / f"step_{key[0]}.e{key[1]}"

    def _copy(self, files: tuple[FileEntry, ...], source: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            if not os.path.lexists(target / file.name):
                link_or_copy(source / file.name, target / file.name)
        fsync_folder(target)


def local(files: tuple[FileEntry, ...]) -> tuple[LocalFile, ...]:
    """Borrowed files as this machine's description of a checkpoint lists them."""
    return tuple(LocalFile(name=file.name, size=file.size, sha256=file.sha256) for file in files)
