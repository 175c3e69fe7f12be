"""The exception tree of the relay, and its exit codes. Each error is one sentence of fact, without advice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from storage.base import (
    BadAddress,
    Corrupt,
    LostEntry,
    Missing,
    OutcomeUnknown,
    QuotaExceeded,
    Store,
    StoreError,
    TooLong,
)


class Exit(IntEnum):
    """Process exit codes (sysexits style, stable; DESIGN.md section 6)."""

    OK = 0
    BUG = 1
    USAGE = 2
    BAD_DATA = 65
    STORAGE_UNREACHABLE = 69
    LEASE_HELD = 73
    UPLOAD_FAILED = 74
    HANDOFF = 75
    FENCED = 76
    POLICY = 77
    BAD_CONFIG = 78
    SIGINT = 130
    SIGTERM = 143


KINDS: dict[int, str] = {
    Exit.BUG: "Bug",
    Exit.USAGE: "UsageError",
    Exit.BAD_DATA: "BadData",
    Exit.STORAGE_UNREACHABLE: "StorageUnreachable",
    Exit.LEASE_HELD: "LeaseHeld",
    Exit.UPLOAD_FAILED: "UploadFailed",
    Exit.FENCED: "Fenced",
    Exit.POLICY: "PolicyRefused",
    Exit.BAD_CONFIG: "BadConfig",
    Exit.SIGINT: "Interrupted",
    Exit.SIGTERM: "Terminated",
}
"""Values of `error` in relay.error/1: one name for each exit code that is an error."""


class RelayError(Exception):
    """An error that a person can act on. `str(e)` states what failed; the application adds the fix.

    RelayError
    ├── UsageError          2   the command line
    ├── BadData            65   checkpoint, ledger or input file damaged; a halted run
    ├── StorageUnreachable 69   storage does not answer, or refuses
    ├── LeaseHeld          73   another session is training this run (or this account trains another)
    ├── UploadFailed       74   the last checkpoint is only on this machine, or its commit's outcome is unknown
    ├── Fenced             76   this session lost its lease while it ran
    ├── PolicyRefused      77   a provider's rule, or ours
    └── BadConfig          78   configuration, identity or environment
    """

    exit_code: Exit = Exit.BUG


class UsageError(RelayError):
    """The command line is wrong."""

    exit_code = Exit.USAGE


class BadData(RelayError):
    """Checkpoint, ledger or input data is damaged, or the run is halted."""

    exit_code = Exit.BAD_DATA


class StorageUnreachable(RelayError):
    """The store does not answer or refuses us."""

    exit_code = Exit.STORAGE_UNREACHABLE


class LeaseHeld(RelayError):
    """Another session holds the lease, or this account holds one on another run."""

    exit_code = Exit.LEASE_HELD


class UploadFailed(RelayError):
    """The final state is verified locally but not committed, or the outcome is unknown."""

    exit_code = Exit.UPLOAD_FAILED


class Fenced(RelayError):
    """A later epoch exists: this session may write nothing more."""

    exit_code = Exit.FENCED


class PolicyRefused(RelayError):
    """Refused by a provider's rule or by ours."""

    exit_code = Exit.POLICY


class BadConfig(RelayError):
    """Configuration, run identity or environment does not fit."""

    exit_code = Exit.BAD_CONFIG


class OfStore(RelayError):
    """A storage error, with the store and the action that it prevented."""

    def __init__(self, error: StoreError, address: str = "", doing: str = "") -> None:
        """`doing`: a sentence (without the full stop) about the action that failed."""
        self.error, self.address, self.doing, self.here = error, address, doing, error.here
        super().__init__(self.worded(str(error)))

    def worded(self, happened: str) -> str:
        """The message, with other words for the storage error."""
        happened = " ".join(happened.split()) or type(self.error).__name__
        where = "Storage" if not self.address or self.address in happened else f"Storage {self.address}"
        where = "This machine's disk" if self.here else where
        begin = f"{self.doing}. {where}" if self.doing else where
        return f"{begin}: {happened if happened.endswith(('.', '?', '!')) else f'{happened}.'}"


class StoreUnreachable(OfStore, StorageUnreachable):
    """The store does not answer, refuses, or is full."""


class StoreDamaged(OfStore, BadData):
    """A stored object is missing, too long, or not as it was written."""


class StoreAddressWrong(OfStore, BadConfig):
    """The address cannot be a store."""


class StoreOutcomeUnknown(OfStore, UploadFailed):
    """An entry was sent, and the store did not confirm whether it landed."""


class NoRoomHere(QuotaExceeded):
    """This machine's disk has no room for a checkpoint."""

    here = True

    def __init__(self, folder: Path, needed: int, free: int, reason: str) -> None:
        super().__init__(f"{folder} cannot take a checkpoint of {needed:,} bytes: {free:,} are free ({reason})")
        self.folder, self.needed, self.free, self.reason = folder, needed, free, reason


_MEANINGS: tuple[tuple[type[StoreError], type[OfStore]], ...] = (
    (BadAddress, StoreAddressWrong),
    (OutcomeUnknown, StoreOutcomeUnknown),
    *((kind, StoreDamaged) for kind in (Missing, TooLong, Corrupt, LostEntry)),
    (StoreError, StoreUnreachable),
)


@contextmanager
def store_errors(store: Store, doing: str = "") -> Iterator[None]:
    """Raise the block's storage errors as relay errors; `doing`: as in `OfStore`."""
    try:
        yield
    except StoreError as error:
        raise of_store(error, store.address, doing) from error


def of_store(error: StoreError, address: str = "", doing: str = "") -> OfStore:
    """The relay error for a storage error."""
    kind = next(ours for theirs, ours in _MEANINGS if isinstance(error, theirs))
    return kind(error, address, doing)
